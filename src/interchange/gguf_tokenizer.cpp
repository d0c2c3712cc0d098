#include "interchange/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/json/json_node.h"
#include "core/json/json_parse.h"
#include "text/sentencepiece/to_tokenizer_json.h"
#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer_files/tokenizer_json_model.h"

namespace mpt {
namespace {

constexpr const char* kInstead =
    "export a GGUF file without the tokenizer (--no-tokenizer), or use --format hf";

void require_piece(const Tokenizer& tokenizer, std::string_view which, int64_t id) {
  if (id < 0)
    throw error("{}: has no {} piece, and llama.cpp would take another for it; {}",
                tokenizer.path(), which, kInstead);
}

void refuse_other_ids(const Tokenizer& tokenizer, std::string_view reason) {
  throw error("{}: llama.cpp would give other ids: {}; {}", tokenizer.path(), reason, kInstead);
}

// Tokens by id.
class TokenLists {
 public:
  void add(std::string text, PieceType type, float score = 0) {
    texts_.push_back(std::move(text));
    scores_.push_back(score);
    types_.push_back(type_of(type));
  }
  void set_type(int64_t id, PieceType type) { types_.at(size_t(id)) = type_of(type); }
  [[nodiscard]] int64_t size() const { return std::ssize(texts_); }
  // The file has a token for each row of the embedding: rows without a piece get one that occurs in
  // no text.
  void pad(int64_t vocab_size) {
    for (int64_t id = size(); id < vocab_size; ++id)
      add(fmt::format("[PAD{}]", id), PieceType::kUnused, -1000.0f);
  }
  void add_to(GgufMetadata& metadata, bool with_scores) const {
    metadata.add("tokenizer.ggml.tokens", texts_);
    if (with_scores) metadata.add("tokenizer.ggml.scores", scores_);
    metadata.add("tokenizer.ggml.token_type", types_);
  }

 private:
  static int32_t type_of(PieceType type) { return static_cast<int32_t>(type) + 1; }
  std::vector<std::string> texts_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
};

// --- SentencePiece -------------------------------------------------------------------------------

// llama.cpp merges by scores like SentencePiece, with the settings that are checked here.
void require_expressible(const Tokenizer& tokenizer, const SentencePieceModel& model) {
  std::string reason = not_in_tokenizer_json(model);
  if (reason.empty() && !model.byte_fallback) reason = "byte_fallback is not set; expected true";
  if (reason.empty() && model.remove_extra_whitespaces)
    reason = "remove_extra_whitespaces is set; expected false";
  if (!reason.empty()) refuse_other_ids(tokenizer, reason);
}

bool is_character(std::string_view text) {
  return std::ranges::all_of(text.substr(1), [](char c) { return (c & 0xC0) == 0x80; });
}

bool can_be_merged(std::string_view text, const NormalPieces& normal) {
  const auto is_symbol = [&](std::string_view part) {
    return is_character(part) || normal.contains(part);
  };
  for (size_t at = 1; at < text.size(); ++at)
    if (is_symbol(text.substr(0, at)) && is_symbol(text.substr(at))) return true;
  return false;
}

// llama.cpp joins two symbols into any piece, even one that only represents itself.
void warn_of_joined_pieces(const Tokenizer& tokenizer, const SentencePieceModel& model) {
  const NormalPieces normal = normal_pieces(model);
  for (const Piece& piece : model.pieces)
    if (piece.type != PieceType::kNormal && can_be_merged(piece.text, normal))
      spdlog::warn("{}: llama.cpp parses the literal text '{}' as the {} piece of that name",
                   tokenizer.path(), piece.text, name_of(piece.type));
}

void add_sentencepiece(GgufMetadata& metadata, const Tokenizer& tokenizer, int64_t vocab_size) {
  const SentencePieceModel model = parse_sentencepiece_model(tokenizer.model_bytes());
  require_expressible(tokenizer, model);
  warn_of_joined_pieces(tokenizer, model);
  metadata.add("tokenizer.ggml.model", "llama");
  metadata.add("tokenizer.ggml.pre", "default");
  TokenLists tokens;
  for (const Piece& piece : model.pieces) tokens.add(piece.text, piece.type, piece.score);
  tokens.pad(vocab_size);
  tokens.add_to(metadata, true);
  metadata.add("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(tokenizer.unk_id()));
  metadata.add_flag("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
}

// --- byte-level BPE ------------------------------------------------------------------------------

// A way to split text into words that llama.cpp knows by name, and its settings there.
struct KnownSplit {
  const char* name;
  std::string_view regex;  // "": that of ByteLevel; kDigits: each digit apart, then that
  bool whole_words;        // a word that is a token is not merged (ignore_merges)
};
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigits = R"(\p{N})";
constexpr std::array<KnownSplit, 4> kSplits{{{"gpt-2", "", false},
                                             {"llama-bpe", kLlama3, true},
                                             {"qwen2", kQwen2, false},
                                             {"smollm", kDigits, false}}};

// The file's reader has accepted it (tokenizer_json_reader.h); anything that may be missing may
// also be null.
bool is_step(const JsonNode& step, std::string_view type) { return step["type"].text() == type; }

bool is_byte_level(const JsonNode& step, bool splits) {
  return is_step(step, "ByteLevel") && !step["add_prefix_space"].flag_or(true) &&
         step["use_regex"].flag_or(true) == splits;
}
bool splits_digits(const JsonNode& step) {
  return is_step(step, "Digits") && step["individual_digits"].flag_or(false);
}
bool isolates(const JsonNode& step) {
  return is_step(step, "Split") && step["behavior"].text() == "Isolated" &&
         !step["invert"].flag_or(false) && !step["pattern"]["Regex"].is_null();
}

// Returns KnownSplit::regex of the words; nullopt for any other way.
std::optional<std::string> regex_of(const JsonNode& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return std::nullopt;
  if (is_byte_level(pre_tokenizer, true)) return "";
  if (!is_step(pre_tokenizer, "Sequence")) return std::nullopt;
  const JsonList steps = pre_tokenizer["pretokenizers"].list();
  if (steps.size() != 2) return std::nullopt;
  if (splits_digits(steps[0]) && is_byte_level(steps[1], true)) return std::string(kDigits);
  if (isolates(steps[0]) && is_byte_level(steps[1], false))
    return steps[0]["pattern"]["Regex"].text();
  return std::nullopt;
}

const KnownSplit* known_split(const JsonNode& pre_tokenizer) {
  const std::optional<std::string> regex = regex_of(pre_tokenizer);
  if (!regex) return nullptr;
  const auto found = std::find_if(kSplits.begin(), kSplits.end(),
                                  [&](const KnownSplit& split) { return split.regex == *regex; });
  return found == kSplits.end() ? nullptr : &*found;
}

// Throws Error for anything that llama.cpp does differently; warns of NFC, which it omits.
const KnownSplit& checked_split(const Tokenizer& tokenizer, const JsonNode& file) {
  const JsonNode model = file["model"], normalizer = file["normalizer"];
  const KnownSplit* const split = known_split(file["pre_tokenizer"]);
  const bool is_bpe = model["type"].is_null() || is_step(model, "BPE");
  if (!is_bpe || split == nullptr)
    throw error(
        "{}: GGUF files written here name the words of byte-level BPE of GPT-2, Llama-3, Qwen2 or "
        "SmolLM only; {}",
        tokenizer.path(), kInstead);
  if (!normalizer.is_null() && !is_step(normalizer, "NFC"))
    refuse_other_ids(tokenizer,
                     fmt::format("the normalizer is {}; expected none", normalizer["type"].text()));
  if (model["ignore_merges"].flag_or(false) != split->whole_words)
    refuse_other_ids(tokenizer, fmt::format("ignore_merges is {}; expected {} with its words",
                                            !split->whole_words, split->whole_words));
  if (!normalizer.is_null())
    spdlog::warn("{}: llama.cpp does not normalize text to NFC as this tokenizer does",
                 tokenizer.path());
  return *split;
}

TokenLists byte_level_tokens(const Tokenizer& tokenizer) {
  TokenLists tokens;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.id_to_piece(id);
    if (piece.empty())
      tokens.pad(id + 1);
    else
      tokens.add(piece, PieceType::kNormal);
  }
  for (const AddedToken& token : tokenizer.subwords()->parts().added.tokens()) {
    tokens.set_type(token.id, token.special ? PieceType::kControl : PieceType::kUserDefined);
    for (const auto& [flag, is_set] : {std::pair{"single_word", token.single_word},
                                       {"lstrip", token.lstrip},
                                       {"rstrip", token.rstrip}})
      if (is_set)
        spdlog::warn("{}: llama.cpp does not know {} of the token '{}'", tokenizer.path(), flag,
                     token.content);
  }
  return tokens;
}

std::vector<std::string> merges_of(const nlohmann::json& model) {
  std::vector<std::string> merges;
  for (const nlohmann::json& merge : model.at("merges")) {
    if (is_version(merge)) continue;
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return merges;
}

void add_byte_level(GgufMetadata& metadata, const Tokenizer& tokenizer, int64_t vocab_size) {
  const nlohmann::json file = parse_plain_json(tokenizer.model_bytes());
  const KnownSplit& split = checked_split(tokenizer, JsonNode(file, ""));
  metadata.add("tokenizer.ggml.model", "gpt2");
  metadata.add("tokenizer.ggml.pre", std::string_view(split.name));
  TokenLists tokens = byte_level_tokens(tokenizer);
  tokens.pad(vocab_size);
  tokens.add_to(metadata, false);
  metadata.add("tokenizer.ggml.merges", merges_of(file.at("model")));
}

}  // namespace

void add_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer, const SpecialIds& ids,
                   int64_t vocab_size, bool prepend_bos) {
  const auto id_of = [](const nlohmann::json& id) { return id.is_null() ? -1 : id.get<int64_t>(); };
  const int64_t bos = id_of(ids.bos), eos = id_of(ids.eos), pad = id_of(ids.pad);
  const auto require_end = [&] { require_piece(tokenizer, "EOS", eos); };
  switch (tokenizer.kind()) {
    case TokenizerKind::kSentencePiece:
      require_end();
      require_piece(tokenizer, "BOS", bos);
      add_sentencepiece(metadata, tokenizer, vocab_size);
      break;
    case TokenizerKind::kTokenizerJson:
      require_end();
      add_byte_level(metadata, tokenizer, vocab_size);
      break;
    case TokenizerKind::kTiktoken:
      throw error("{}: a tokenizer of the kind {} is not written to GGUF files; {}",
                  tokenizer.path(), name_of(tokenizer.kind()), kInstead);
  }
  // Without a BOS piece none is prepended, and any other id can stand for it, as in files of Qwen2.
  if (prepend_bos) require_piece(tokenizer, "BOS", bos);
  metadata.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos >= 0 ? bos : eos));
  metadata.add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(eos));
  if (pad >= 0) metadata.add("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(pad));
  metadata.add_flag("tokenizer.ggml.add_bos_token", prepend_bos);
  metadata.add_flag("tokenizer.ggml.add_eos_token", false);
}

}  // namespace mpt
