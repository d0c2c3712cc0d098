#include "text/tokenizer_files/tokenizer_json_steps.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace mpt {
namespace {

constexpr int kMostLevels = 8;  // nesting depth of sequences
constexpr int64_t kMostTextSteps = 100;
constexpr size_t kMostTextBytes = 256;  // inserted by one step

// GPT-2's pattern, built into ByteLevel.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kNumberPattern = R"(\p{N})";

// Calls read(part) for a step, or for each step of a sequence; deducts their number from `left`.
template <class F>
void for_each_step(const JsonNode& node, const char* key, const F& read, int64_t& left,
                   int level = 0) {
  if (node.is_null()) return;
  if (node["type"].text() != "Sequence") return read(node);
  node.require_keys({key});
  if (level == kMostLevels) node.refuse("expected fewer sequences within each other");
  const JsonList parts = node[key].list();
  if ((left -= std::ssize(parts)) < 0)
    node[key].refuse(fmt::format("expected at most {} steps in all", kMostTextSteps));
  for (const JsonNode& part : parts) for_each_step(part, key, read, left, level + 1);
}
template <class F>
void for_each_step(const JsonNode& node, const char* key, const F& read) {
  int64_t left = kMostTextSteps;
  for_each_step(node, key, read, left);
}

// {"String": "..."} or {"Regex": "..."}
Regex read_pattern(const JsonNode& node) {
  node.require_keys({"String", "Regex"});
  const JsonNode text = node["String"], regex = node["Regex"];
  if (text.is_null() == regex.is_null()) node.refuse("expected either String or Regex");
  if (!text.is_null() && text.text().empty()) text.refuse("expected a text that is not empty");
  try {
    return text.is_null() ? Regex(regex.text(), RegexSyntax::kOniguruma)
                          : Regex::of_text(text.text());
  } catch (const Error& refusal) {
    throw error("{}: {}", node.path(), refusal.what());
  }
}

std::string read_short(const JsonNode& node) {
  if (node.text().size() > kMostTextBytes)
    node.refuse(fmt::format("expected at most {} bytes", kMostTextBytes));
  return node.text();
}

std::string read_character(const JsonNode& node) {
  const std::string& text = node.text();
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (std::ranges::count_if(text, begins) != 1) node.refuse("expected a single character");
  return text;
}

Normalizer::Step normalizer_step(const JsonNode& node) {
  const std::string& type = node["type"].text();
  for (size_t i = 0; i < EnumNames<NormalForm>::kNames.size(); ++i)
    if (type == EnumNames<NormalForm>::kNames[i]) {
      node.require_keys({});
      return NormalForm(i);
    }
  if (type == "Prepend") {
    node.require_keys({"prepend"});
    return PrependText{read_short(node["prepend"])};
  }
  if (type != "Replace")
    node["type"].refuse("expected NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence or null");
  node.require_keys({"pattern", "content"});
  return ReplaceMatches{read_pattern(node["pattern"]), read_short(node["content"])};
}

SplitText split_step(const JsonNode& node) {
  node.require_keys({"pattern", "behavior", "invert"});
  return {read_pattern(node["pattern"]), node["behavior"].name<SplitBehavior>(),
          node["invert"].flag()};
}

SplitText digits_step(const JsonNode& node) {
  node.require_keys({"individual_digits"});
  return {Regex(kNumberPattern, RegexSyntax::kOniguruma),
          node["individual_digits"].flag() ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
}

PrependScheme prepend_scheme(const JsonNode& node) {
  const JsonNode scheme = node["prepend_scheme"], prefix = node["add_prefix_space"];
  const PrependScheme read =
      scheme.is_null() ? PrependScheme::kAlways : scheme.name<PrependScheme>();
  if (prefix.flag_or(true)) return read;
  if (!scheme.is_null() && read != PrependScheme::kNever)
    prefix.refuse("expected true, because prepend_scheme is not never");
  return PrependScheme::kNever;
}

const std::initializer_list<std::string_view> kMetaspaceKeys{
    "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"};

Metaspace metaspace_step(const JsonNode& node, const Normalizer& normalizer) {
  node.require_keys(kMetaspaceKeys);
  const std::string replacement = read_character(node["replacement"]);
  const PrependScheme prepend = prepend_scheme(node);
  if (prepend == PrependScheme::kFirst && !normalizer.only_forms())
    node["prepend_scheme"].refuse(
        "expected always or never with a normalizer that adds or removes text");
  return {replacement, Regex::of_text(replacement), prepend, node["split"].flag_or(true)};
}

const std::initializer_list<std::string_view> kByteLevelKeys{"add_prefix_space", "trim_offsets",
                                                             "use_regex"};

void add_byte_level(const JsonNode& node, ReadPreTokenizer& read) {
  node.require_keys(kByteLevelKeys);
  if (node["add_prefix_space"].flag()) read.steps.add(PrefixSpace{});
  if (node["use_regex"].flag_or(true))
    read.steps.add(
        SplitText{Regex(kGpt2Pattern, RegexSyntax::kOniguruma), SplitBehavior::kIsolated});
  read.symbols = Symbols::kBytes;
}

void add_pre_tokenizer(const JsonNode& node, const Normalizer& normalizer, ReadPreTokenizer& read) {
  if (read.symbols == Symbols::kBytes) node.refuse("expected nothing after ByteLevel");
  const std::string& type = node["type"].text();
  if (type == "ByteLevel")
    add_byte_level(node, read);
  else if (type == "Split")
    read.steps.add(split_step(node));
  else if (type == "Digits")
    read.steps.add(digits_step(node));
  else if (type == "Metaspace")
    read.steps.add(metaspace_step(node, normalizer));
  else
    node["type"].refuse("expected ByteLevel, Split, Digits, Metaspace, Sequence or null");
}

StripEnds strip_step(const JsonNode& node) {
  node.require_keys({"content", "start", "stop"});
  return {read_character(node["content"]), node["start"].count(), node["stop"].count()};
}

TextDecoder::Step decoder_step(const JsonNode& node) {
  const std::string& type = node["type"].text();
  if (type == "ByteLevel") {
    node.require_keys(kByteLevelKeys);
    return DecodeByteLevel{};
  }
  if (type == "Strip") return strip_step(node);
  if (type == "Metaspace") {
    node.require_keys(kMetaspaceKeys);
    return DecodeMetaspace{read_character(node["replacement"]),
                           prepend_scheme(node) != PrependScheme::kNever};
  }
  if (type == "Replace") {
    node.require_keys({"pattern", "content"});
    return ReplaceMatches{read_pattern(node["pattern"]), read_short(node["content"])};
  }
  node.require_keys({});
  if (type == "ByteFallback") return DecodeByteFallback{};
  if (type == "Fuse") return Fuse{};
  node["type"].refuse(
      "expected ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence or null");
}

}  // namespace

Normalizer read_normalizer(const JsonNode& node) {
  Normalizer normalizer;
  for_each_step(node, "normalizers",
                [&](const JsonNode& step) { normalizer.add(normalizer_step(step)); });
  return normalizer;
}

ReadPreTokenizer read_pre_tokenizer(const JsonNode& node, const Normalizer& normalizer) {
  ReadPreTokenizer read;
  for_each_step(node, "pretokenizers",
                [&](const JsonNode& step) { add_pre_tokenizer(step, normalizer, read); });
  return read;
}

TextDecoder read_decoder(const JsonNode& node) {
  TextDecoder decoder;
  for_each_step(node, "decoders", [&](const JsonNode& step) { decoder.add(decoder_step(step)); });
  return decoder;
}

}  // namespace mpt
