#include "text/sentencepiece/to_tokenizer_json.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/check.h"
#include "core/text/utf8.h"
#include "text/subword/vocabulary.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

namespace mpt {
namespace {

using nlohmann::ordered_json;

bool is_normal(const Piece& piece) { return piece.type == PieceType::kNormal; }

// Character boundaries of valid UTF-8, including its end.
std::vector<size_t> character_ends(std::string_view text) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ends.push_back(i);
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

// --- what cannot be expressed --------------------------------------------------------------------

std::string in_settings(const SentencePieceModel& model) {
  if (model.model == PieceModel::kUnigram)
    return "it is a unigram model, whose segmentations of the same score are told apart by "
           "rounding, "
           "differently by each library; expected bpe";
  if (model.model != PieceModel::kBpe)
    return fmt::format("it is a {} model; expected bpe", name_of(model.model));
  if (model.changes_characters)
    return "its normalizer_spec has a character map (such as nmt_nfkc); expected the rule identity";
  if (model.changes_decoded_text) return "its denormalizer_spec has a character map; expected none";
  if (model.space_as_suffix) return "treat_whitespace_as_suffix is set; expected false";
  if (!model.escape_whitespaces) return "escape_whitespaces is not set; expected true";
  return "";
}

std::string in_piece(const Piece& piece, int64_t id) {
  if (piece.text.size() > kMostPieceBytes)
    return fmt::format("piece {} has {} bytes; expected at most {}", id, piece.text.size(),
                       kMostPieceBytes);
  if (piece.type == PieceType::kUserDefined || piece.type == PieceType::kUnused)
    return fmt::format("piece {}, '{}', is {}; expected normal, control, unknown or byte", id,
                       piece.text, name_of(piece.type));
  if (piece.text.find(' ') != std::string::npos)
    return fmt::format("piece {}, '{}', has a space", id, piece.text);
  if (piece.text.empty() || valid_utf8_prefix(piece.text) != piece.text.size())
    return fmt::format("piece {} is not a text in UTF-8", id);
  if (!is_normal(piece) && character_ends(piece.text).size() == 1)
    return fmt::format("piece {}, '{}', is {} and a single character", id, piece.text,
                       name_of(piece.type));
  return "";
}

std::string in_pieces(const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i)
    if (std::string found = in_piece(pieces[i], int64_t(i)); !found.empty()) return found;
  const auto unknown = [](const Piece& piece) { return piece.type == PieceType::kUnknown; };
  if (std::ranges::count_if(pieces, unknown) != 1) return "it has no single piece of type unknown";
  return "";
}

// --- the model -----------------------------------------------------------------------------------

// Whether the text's first `bytes` bytes equal its last.
bool has_border(std::string_view text, size_t bytes) {
  return text.substr(0, bytes) == text.substr(text.size() - bytes);
}

// Positions where the piece splits into two normal pieces, in order of preference. If the right
// part of one split is the left part of another ("ab|a" and "a|ba" overlap in "ababa"), the first
// of them comes first.
std::vector<size_t> splits_of(std::string_view piece, const NormalPieces& normal) {
  std::vector<size_t> splits;
  for (const size_t at : character_ends(piece))
    if (at < piece.size() && normal.contains(piece.substr(0, at)) &&
        normal.contains(piece.substr(at)))
      splits.push_back(at);
  for (size_t i = 0; i < splits.size(); ++i) {
    const size_t mirrored = piece.size() - splits[i];
    const auto other = std::find(splits.begin() + std::ptrdiff_t(i) + 1, splits.end(), mirrored);
    if (other != splits.end() && has_border(piece, splits[i])) std::swap(splits[i], *other);
  }
  return splits;
}

ordered_json vocabulary(const std::vector<Piece>& pieces) {
  ordered_json ids = ordered_json::object();
  auto& entries = ids.get_ref<ordered_json::object_t&>();
  for (size_t i = 0; i < pieces.size(); ++i)  // operator[] would search all earlier ones
    entries.emplace_back(pieces[i].text, i);
  return ids;
}

int64_t unknown_id(const std::vector<Piece>& pieces) {
  const auto found = std::ranges::find(pieces, PieceType::kUnknown, &Piece::type);
  return found - pieces.begin();
}

ordered_json bpe(const SentencePieceModel& model) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", model.pieces[size_t(unknown_id(model.pieces))].text},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", model.byte_fallback},
          {"vocab", vocabulary(model.pieces)},
          {"merges", bpe_merges(model)}};
}

// --- surrounding keys ----------------------------------------------------------------------------

ordered_json replace(const char* kind, const char* pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

ordered_json normalizer(const SentencePieceModel& model) {
  ordered_json steps = ordered_json::array();
  if (model.remove_extra_whitespaces) {
    steps.push_back(replace("Regex", "\\A +", ""));
    steps.push_back(replace("Regex", " {2,}", " "));
  }
  if (model.add_dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceSymbol}});
  steps.push_back(replace("String", " ", kSpaceSymbol));
  if (model.remove_extra_whitespaces)  // also symbols in the text
    steps.push_back(replace("Regex", "(?:\xE2\x96\x81)+\\z", ""));
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

ordered_json decoder(const SentencePieceModel& model) {
  ordered_json steps = ordered_json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceSymbol}}}, {"content", " "}});
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix || model.remove_extra_whitespaces)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

ordered_json sequence(const char* id, int type) {
  return {{"Sequence", {{"id", id}, {"type_id", type}}}};
}

ordered_json begun_with(const std::string& piece, int64_t id) {
  const auto begin = [&](int type) -> ordered_json {
    return {{"SpecialToken", {{"id", piece}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", {begin(0), sequence("A", 0)}},
          {"pair", {begin(0), sequence("A", 0), begin(1), sequence("B", 1)}},
          {"special_tokens", {{piece, {{"id", piece}, {"ids", {id}}, {"tokens", {piece}}}}}}};
}

}  // namespace

std::string not_in_tokenizer_json(const SentencePieceModel& model) {
  std::string found = in_settings(model);
  return found.empty() ? in_pieces(model.pieces) : found;
}

NormalPieces normal_pieces(const SentencePieceModel& model) {
  NormalPieces normal;
  for (const Piece& piece : model.pieces)
    if (is_normal(piece)) normal.insert(piece.text);
  return normal;
}

std::vector<std::string> bpe_merges(const SentencePieceModel& model) {
  const NormalPieces normal = normal_pieces(model);
  std::vector<const Piece*> by_score;
  for (const Piece& piece : model.pieces)
    if (is_normal(piece)) by_score.push_back(&piece);
  std::ranges::stable_sort(by_score, std::ranges::greater{}, &Piece::score);
  std::vector<std::string> merges;
  int64_t bytes = 0;
  for (const Piece* piece : by_score)
    for (const size_t at : splits_of(piece->text, normal)) {
      merges.push_back(piece->text.substr(0, at) + " " + piece->text.substr(at));
      if ((bytes += std::ssize(merges.back())) > kMaxTokenizerBytes)
        throw error("the merges of the tokenizer's pieces have more than {} bytes",
                    kMaxTokenizerBytes);
    }
  return merges;
}

ordered_json tokenizer_json(const SentencePieceModel& model, int64_t bos) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", ordered_json::array()},
          {"normalizer", normalizer(model)},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           bos < 0 ? ordered_json() : begun_with(model.pieces[size_t(bos)].text, bos)},
          {"decoder", decoder(model)},
          {"model", bpe(model)}};
}

}  // namespace mpt
