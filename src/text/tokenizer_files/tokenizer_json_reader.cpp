#include "text/tokenizer_files/tokenizer_json_reader.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/json/json_node.h"
#include "core/json/json_parse.h"
#include "text/tokenizer_files/tokenizer_json_model.h"
#include "text/tokenizer_files/tokenizer_json_steps.h"

namespace mpt {
namespace {

// --- added tokens --------------------------------------------------------------------------------

AddedToken added_token(const JsonNode& node) {
  node.require_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{.content = node["content"].text(),
                   .id = int32_t(node["id"].count()),
                   .single_word = node["single_word"].flag(),
                   .lstrip = node["lstrip"].flag(),
                   .rstrip = node["rstrip"].flag(),
                   .normalized = node["normalized"].flag(),
                   .special = node["special"].flag()};
  if (token.content.empty()) node["content"].refuse("expected a text that is not empty");
  if (token.content.size() > kMostPieceBytes)
    throw error("{}: has {} bytes; at most {} are accepted", node["content"].path(),
                token.content.size(), kMostPieceBytes);
  return token;
}

// The library numbers added tokens itself: the id of the model's piece with the same text,
// otherwise the next free one.
std::vector<AddedToken> added_tokens(const JsonNode& node, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (node.is_null()) return tokens;
  auto next = int64_t(vocabulary.pieces());
  Vocabulary seen(node.list().size() + vocabulary.pieces());
  for (const JsonNode& entry : node.list()) {
    AddedToken token = added_token(entry);
    const int32_t known = vocabulary.id_of(token.content);
    const int64_t id = known >= 0 ? known : next++;
    if (token.id != id)
      entry["id"].refuse(
          fmt::format("expected {}, the id that the tokenizers library gives it", id));
    try {
      seen.add(token.content, id);
    } catch (const Error& defect) {
      throw error("{}: {}", entry.path(), defect.what());
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// --- tokens around a text ------------------------------------------------------------------------

struct Around {
  int64_t bos = -1, eos = -1;
};

// The single special token among the template's parts [begin, end); -1 if there are none or
// several.
int64_t token_of(const JsonNode& processor, const JsonList& parts, size_t begin, size_t end) {
  if (end - begin != 1) return -1;
  const std::string& name = parts[begin]["SpecialToken"]["id"].text();
  const JsonNode ids = processor["special_tokens"][name]["ids"];
  return ids.list().size() == 1 ? ids.list()[0].count() : -1;
}

Around read_template(const JsonNode& processor) {
  processor.require_keys({"single", "pair", "special_tokens"});
  const JsonList parts = processor["single"].list();
  size_t texts = 0, text = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]["Sequence"].is_null()) continue;
    ++texts;
    text = i;
  }
  if (texts != 1) processor["single"].refuse("expected special tokens around one sequence");
  return {token_of(processor, parts, 0, text), token_of(processor, parts, text + 1, parts.size())};
}

Around post_processor(const JsonNode& node) {
  Around around;
  if (node.is_null()) return around;
  const std::string& type = node["type"].text();
  if (type == "ByteLevel") {
    node.require_keys({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    around = read_template(node);
  } else if (type == "Sequence") {
    node.require_keys({"processors"});
    for (const JsonNode& part : node["processors"].list()) {
      if (part["type"].text() == "Sequence") part["type"].refuse("expected no sequence within one");
      const Around found = post_processor(part);
      if (found.bos >= 0) around.bos = found.bos;
      if (found.eos >= 0) around.eos = found.eos;
    }
  } else {
    node["type"].refuse("expected ByteLevel, TemplateProcessing, Sequence or null");
  }
  return around;
}

constexpr std::array<std::string_view, 5> kBosNames{"<|begin_of_text|>", "<|startoftext|>", "<s>",
                                                    "<bos>", "[BOS]"};
constexpr std::array<std::string_view, 5> kEosNames{"<|end_of_text|>", "<|endoftext|>", "</s>",
                                                    "<eos>", "[EOS]"};
constexpr std::array<std::string_view, 4> kPadNames{"<|finetune_right_pad_id|>", "<pad>", "<|pad|>",
                                                    "[PAD]"};

int64_t named_token(const std::vector<AddedToken>& tokens,
                    std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    for (const AddedToken& token : tokens)
      if (token.special && token.content == name) return token.id;
  return -1;
}

void check_token(int64_t id, int64_t vocab_size, std::string_view key) {
  if (id >= vocab_size)
    throw error("{}: the token {} is outside of the vocabulary of {}", key, id, vocab_size);
}

// --- whole file ----------------------------------------------------------------------------------

nlohmann::json parsed(std::string_view content) {
  if (std::ssize(content) > kMaxTokenizerBytes)
    throw error("has {} bytes; at most {} are read", content.size(), kMaxTokenizerBytes);
  return parse_plain_json(content);
}

}  // namespace

SubwordTokenizer read_tokenizer_json(std::string_view content) {
  const nlohmann::json file = parsed(content);
  const JsonNode root(file, "");
  root.require_keys({"version", "truncation", "padding", "added_tokens", "normalizer",
                     "pre_tokenizer", "post_processor", "decoder", "model"});
  if (!root["version"].is_null() && root["version"].text() != "1.0")
    root["version"].refuse("expected 1.0");
  root["truncation"].require_null("texts are not cut here");
  root["padding"].require_null("texts are not padded here");

  SubwordParts parts;
  parts.normalizer = read_normalizer(root["normalizer"]);
  ReadPreTokenizer read = read_pre_tokenizer(root["pre_tokenizer"], parts.normalizer);
  ReadModel model = read_model(root["model"], read.symbols);
  parts.pre_tokenizer = std::move(read.steps);
  parts.vocabulary = std::move(model.vocabulary);
  parts.model = std::move(model.model);
  parts.unknown = model.unknown;
  parts.symbols = read.symbols;
  parts.byte_fallback = model.byte_fallback;
  parts.added =
      AddedTokens(added_tokens(root["added_tokens"], *parts.vocabulary), parts.normalizer);
  parts.decoder = read_decoder(root["decoder"]);
  const Around around = post_processor(root["post_processor"]);
  const std::vector<AddedToken>& added = parts.added.tokens();
  parts.template_begins_with_bos = around.bos >= 0;
  parts.bos = around.bos >= 0 ? around.bos : named_token(added, kBosNames);
  parts.eos = around.eos >= 0 ? around.eos : named_token(added, kEosNames);
  parts.pad = named_token(added, kPadNames);
  SubwordTokenizer tokenizer(std::move(parts));
  for (const int64_t id : {tokenizer.parts().bos, tokenizer.parts().eos})
    check_token(id, tokenizer.vocab_size(), "post_processor");
  return tokenizer;
}

}  // namespace mpt
