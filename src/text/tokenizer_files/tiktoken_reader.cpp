#include "text/tokenizer_files/tiktoken_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/json/json_node.h"
#include "core/json/json_parse.h"
#include "core/seeded_hash.h"
#include "core/text/shown_text.h"
#include "core/text/utf8.h"
#include "text/byte_level.h"
#include "text/subword/bpe.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

namespace mpt {
namespace {

constexpr size_t kMostSplitBytes = 1024;  // all ways to split a piece are tried

struct NamedPattern {
  std::string_view name, pattern;
};
// Patterns of tiktoken 0.14, and of the models' own programs.
constexpr std::array<NamedPattern, 5> kPatterns{
    {{"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
     {"cl100k_base",
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
      R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
     {"o200k_base",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
     {"llama3",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
     {"qwen2",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}}};

std::string_view first_line(std::string_view text) {
  return text.substr(0, std::min(text.find('\n'), text.size()));
}

// Returns -1 for a character outside base64.
int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size() - padding; ++i) {
    const int value = base64_value(text[i]);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | uint32_t(value);
    if (i % 4 > 0) bytes += char(bits >> (6 - 2 * (i % 4)));
  }
  return bytes;
}

struct RankedPiece {
  std::string bytes;
  int64_t rank;
};

// Returns nullopt if the line is not one of a tiktoken file.
std::optional<RankedPiece> ranked_piece(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = from_base64(line.substr(0, space));
  const std::string_view number = line.substr(space + 1);
  uint32_t rank = 0;
  const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (!bytes || failure != std::errc() || end != number.data() + number.size() || rank > INT32_MAX)
    return std::nullopt;
  return RankedPiece{std::move(*bytes), int64_t{rank}};
}

std::vector<RankedPiece> ranked_pieces(std::string_view ranks) {
  std::vector<RankedPiece> pieces;
  for (int64_t number = 1; !ranks.empty(); ++number) {
    const std::string_view line = first_line(ranks);
    ranks.remove_prefix(std::min(line.size() + 1, ranks.size()));
    const std::string_view text = without_trailing_space(line);
    if (text.empty()) continue;
    auto piece = ranked_piece(text);
    if (!piece || piece->bytes.size() > kMostSplitBytes)
      throw error(
          "line {} of the pieces: found '{}'; expected a piece of at most {} bytes in "
          "base64, a space and a rank",
          number, shortened(text, 60), kMostSplitBytes);
    pieces.push_back(std::move(*piece));
  }
  return pieces;
}

// Adjacent pieces merge into any piece that they spell, lowest rank first.
Merges merges_of(const std::vector<RankedPiece>& pieces) {
  std::unordered_map<std::string_view, int32_t, SeededTextHash> ids;
  for (const RankedPiece& piece : pieces) ids.emplace(piece.bytes, int32_t(piece.rank));
  Merges merges;
  for (const auto& [bytes, rank] : pieces)
    for (size_t at = 1; at < bytes.size(); ++at) {
      const auto left = ids.find(std::string_view(bytes).substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(std::string_view(bytes).substr(at));
      if (right != ids.end())
        merges.add(left->second, right->second, {uint32_t(rank), int32_t(rank)});
    }
  return merges;
}

std::unique_ptr<Vocabulary> vocabulary_of(const std::vector<RankedPiece>& pieces) {
  auto vocabulary = std::make_unique<Vocabulary>(pieces.size());
  for (const RankedPiece& piece : pieces) vocabulary->add(byte_level_text(piece.bytes), piece.rank);
  for (int byte = 0; byte < 256; ++byte)
    if (const char c = char(byte); vocabulary->id_of(byte_level_text({&c, 1})) < 0)
      throw error("no piece for the byte {:#04x}; expected one for each byte", byte);
  return vocabulary;
}

Regex pattern_of(const JsonNode& node) {
  std::string_view pattern = node.text();
  for (const NamedPattern& known : kPatterns)
    if (pattern == known.name) pattern = known.pattern;
  try {
    return {pattern, RegexSyntax::kRust};
  } catch (const Error& refusal) {
    throw error("{}: {}", node.path(), refusal.what());
  }
}

std::vector<AddedToken> special_tokens(const JsonNode& node, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (node.is_null()) return tokens;
  if (!node.value().is_object()) node.refuse("expected an object of tokens and ids");
  Vocabulary seen(vocabulary.pieces() + node.value().size());
  for (const auto& [content, unused] : node.value().items()) {
    const JsonNode id = node[content];
    if (content.empty() || id.count() >= seen.id_limit() || vocabulary.text_of(id.count()))
      id.refuse("expected a token that is not empty and an id that no piece has");
    seen.add(content, id.count());
    tokens.push_back({.content = content, .id = int32_t(id.count()), .special = true});
  }
  return tokens;
}

int64_t token_of(const JsonNode& node, const std::vector<AddedToken>& tokens) {
  if (node.is_null()) return -1;
  const auto found = std::ranges::find(tokens, node.text(), &AddedToken::content);
  if (found == tokens.end()) node.refuse("expected one of special_tokens");
  return found->id;
}

// Empty if there is no second line.
std::string_view after_first_line(std::string_view content) {
  return content.substr(std::min(first_line(content).size() + 1, content.size()));
}

}  // namespace

bool is_tiktoken(std::string_view content) {
  return ranked_piece(without_trailing_space(first_line(content))).has_value();
}

bool is_tiktoken_with_settings(std::string_view content) {
  const std::string_view line = without_trailing_space(first_line(content));
  return line.starts_with('{') && line.ends_with('}') && is_tiktoken(after_first_line(content));
}

std::string tiktoken_with_settings(std::string_view settings, std::string_view ranks) {
  return json_text(parse_plain_json(settings)) + "\n" + std::string(ranks);
}

TiktokenFiles tiktoken_files(std::string_view with_settings) {
  return {std::string(first_line(with_settings)), std::string(after_first_line(with_settings))};
}

SubwordTokenizer read_tiktoken(std::string_view with_settings) {
  if (std::ssize(with_settings) > kMaxTokenizerBytes)
    throw error("has {} bytes; at most {} are read", with_settings.size(), kMaxTokenizerBytes);
  const TiktokenFiles files = tiktoken_files(with_settings);
  const nlohmann::json settings = parse_plain_json(files.settings);
  const JsonNode root(settings, "");
  root.require_keys({"pattern", "special_tokens", "bos_token", "eos_token"});
  const std::vector<RankedPiece> pieces = ranked_pieces(files.ranks);

  SubwordParts parts;
  parts.pre_tokenizer.add(MatchText{pattern_of(root["pattern"])});
  parts.vocabulary = vocabulary_of(pieces);
  parts.symbols = Symbols::kBytes;
  parts.model = std::make_unique<Bpe>(*parts.vocabulary, merges_of(pieces),
                                      BpeOptions{.symbols = Symbols::kBytes, .whole_words = true});
  std::vector<AddedToken> special = special_tokens(root["special_tokens"], *parts.vocabulary);
  parts.bos = token_of(root["bos_token"], special);
  parts.eos = token_of(root["eos_token"], special);
  parts.added = AddedTokens(std::move(special), parts.normalizer);
  parts.matches_special = false;
  parts.decoder.add(DecodeByteLevel{});
  return SubwordTokenizer(std::move(parts));
}

}  // namespace mpt
