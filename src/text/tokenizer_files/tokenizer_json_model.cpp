#include "text/tokenizer_files/tokenizer_json_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "text/subword/unigram.h"

namespace mpt {

bool is_version(const nlohmann::json& merge) {
  return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
}

namespace {

std::unique_ptr<Vocabulary> bpe_vocabulary(const JsonNode& node) {
  if (!node.value().is_object()) node.refuse("expected an object of pieces and ids");
  auto vocabulary = std::make_unique<Vocabulary>(node.value().size());
  for (const auto& [text, id] : node.value().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      JsonNode(id, fmt::format("{}: the id of '{}'", node.path(), text))
          .refuse("expected a whole number, 0 or more");
    try {
      vocabulary->add(text, id.get<int64_t>());
    } catch (const Error& defect) {
      throw error("{}: {}", node.path(), defect.what());
    }
  }
  return vocabulary;
}

// "a b" or ["a", "b"]
std::pair<std::string, std::string> merge_of(const JsonNode& node) {
  if (node.value().is_array()) {
    const JsonList parts = node.list();
    if (parts.size() == 2) return {parts[0].text(), parts[1].text()};
  } else if (node.value().is_string()) {
    const std::string& text = node.text();
    const size_t space = text.find(' ');
    if (space != std::string::npos && space == text.rfind(' '))
      return {text.substr(0, space), text.substr(space + 1)};
  }
  node.refuse("expected two pieces, as \"a b\" or [\"a\", \"b\"]");
}

int32_t known_piece(const JsonNode& merge, const Vocabulary& vocabulary, const std::string& text) {
  const int32_t id = vocabulary.id_of(text);
  if (id < 0) throw error("{}: '{}' is not in the vocabulary", merge.path(), text);
  return id;
}

Merges read_merges(const JsonNode& node, const Vocabulary& vocabulary) {
  if (!node.value().is_array()) node.refuse("expected a list of merges");
  Merges merges;
  uint32_t rank = 0;
  for (size_t i = 0; i < node.value().size(); ++i) {
    const nlohmann::json& value = node.value()[i];
    if (is_version(value)) continue;
    const JsonNode merge(value, fmt::format("{}[{}]", node.path(), i));
    const auto [left, right] = merge_of(merge);
    const int32_t left_id = known_piece(merge, vocabulary, left);
    const int32_t right_id = known_piece(merge, vocabulary, right);
    merges.add(left_id, right_id, {rank++, known_piece(merge, vocabulary, left + right)});
  }
  return merges;
}

void require_none(const JsonNode& node) {
  if (!node.is_null() && !node.text().empty()) node.refuse("expected null: it is not read here");
}

ReadModel read_bpe(const JsonNode& node, Symbols symbols) {
  node.require_keys({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  const JsonNode dropout = node["dropout"];
  if (!dropout.is_null() && dropout.number() != 0)
    dropout.refuse("expected null: ids must not be left to chance");
  require_none(node["continuing_subword_prefix"]);
  require_none(node["end_of_word_suffix"]);
  ReadModel read{.vocabulary = bpe_vocabulary(node["vocab"]), .model = nullptr};
  const JsonNode unknown = node["unk_token"];
  if (!unknown.is_null()) read.unknown = read.vocabulary->id_of(unknown.text());
  read.byte_fallback = node["byte_fallback"].flag_or(false);
  const BpeOptions options{.symbols = symbols,
                           .byte_fallback = read.byte_fallback,
                           .fuse_unknown = node["fuse_unk"].flag_or(false),
                           .whole_words = node["ignore_merges"].flag_or(false),
                           .has_unknown = !unknown.is_null(),
                           .unknown = int32_t(read.unknown)};
  read.model = std::make_unique<Bpe>(*read.vocabulary,
                                     read_merges(node["merges"], *read.vocabulary), options);
  return read;
}

ReadModel read_unigram(const JsonNode& node, Symbols symbols) {
  node.require_keys({"unk_id", "vocab", "byte_fallback"});
  if (symbols == Symbols::kBytes)
    node["type"].refuse("expected BPE after a pre-tokenizer of bytes (ByteLevel)");
  const JsonList pieces = node["vocab"].list();
  if (pieces.empty()) node["vocab"].refuse("expected pieces and their scores");
  ReadModel read{.vocabulary = std::make_unique<Vocabulary>(pieces.size()), .model = nullptr};
  std::vector<double> scores;
  for (const JsonNode& piece : pieces) {
    const JsonList pair = piece.list();
    if (pair.size() != 2) piece.refuse("expected [piece, score]");
    if (pair[0].text().empty()) pair[0].refuse("expected a text that is not empty");
    scores.push_back(pair[1].number());
    try {
      read.vocabulary->add(pair[0].text(), std::ssize(scores) - 1);
    } catch (const Error& defect) {
      throw error("{}: {}", piece.path(), defect.what());
    }
  }
  const JsonNode unknown = node["unk_id"];
  if (!unknown.is_null()) read.unknown = unknown.count();
  if (read.unknown >= std::ssize(scores))
    unknown.refuse(fmt::format("expected an id below {}", scores.size()));
  read.byte_fallback = node["byte_fallback"].flag_or(false);
  read.model = std::make_unique<Unigram>(
      *read.vocabulary, std::move(scores),
      UnigramOptions{.unknown = int32_t(read.unknown), .byte_fallback = read.byte_fallback});
  return read;
}

}  // namespace

ReadModel read_model(const JsonNode& node, Symbols symbols) {
  if (!node.value().is_object()) node.refuse("expected an object");
  const std::string& type = node["type"].text();
  if (type == "BPE") return read_bpe(node, symbols);
  if (type == "Unigram") return read_unigram(node, symbols);
  node["type"].refuse("expected BPE or Unigram");
}

}  // namespace mpt
