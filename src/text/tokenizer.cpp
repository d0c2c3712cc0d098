#include "text/tokenizer.h"

#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include <sentencepiece_processor.h>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/text/library_message.h"
#include "core/text/utf8.h"
#include "text/sentencepiece/sentencepiece_defects.h"
#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer_files/tiktoken_reader.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

namespace mpt {

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
  std::optional<SubwordTokenizer> subwords;  // otherwise the processor is used
};

namespace {

std::string content_of(const std::string& path) {
  require_regular_file(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw error("{}: cannot be opened for reading", path);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  return std::string(without_byte_order_mark(content));
}

// The library returns a status; its dependencies throw exceptions.
bool accepts(sentencepiece::SentencePieceProcessor& processor, const std::string& bytes) {
  try {
    return processor.LoadFromSerializedProto(bytes).ok();
  } catch (const std::exception&) {
    return false;
  }
}

void load_sentencepiece(sentencepiece::SentencePieceProcessor& processor, const std::string& path,
                        const std::string& bytes) {
  const std::string defect = bytes.empty() ? "it is empty" : defect_of_model(bytes);
  if (!defect.empty() || !accepts(processor, bytes))
    throw error(
        "{}: not a SentencePiece model{}; expected a .model file, as written by `mpretrain "
        "tokenizer`, a tokenizer.json or a tiktoken file",
        path, defect.empty() ? "" : ": " + defect);
}

// SentencePiece models begin with a field tag, tokenizer.json with a brace.
TokenizerKind kind_of(std::string_view bytes) {
  if (is_tiktoken(bytes) || is_tiktoken_with_settings(bytes)) return TokenizerKind::kTiktoken;
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes[first] == '{' ? TokenizerKind::kTokenizerJson
                                                                : TokenizerKind::kSentencePiece;
}

std::string with_settings_beside(const std::string& path, const std::string& ranks) {
  const std::string settings = path + ".json";
  if (!has_optional_file(posix_file_system(), settings))
    throw error(
        "{}: a tiktoken file, which does not say how text is split; expected {} next to it, such "
        "as "
        R"({{"pattern": "cl100k_base", "special_tokens": {{"<|endoftext|>": 100257}}, )"
        R"("eos_token": "<|endoftext|>"}})",
        path, settings);
  try {
    return tiktoken_with_settings(content_of(settings), ranks);
  } catch (const Error& defect) {
    throw error("{}: {}", settings, defect.what());
  }
}

}  // namespace

TokenizerFileContent read_tokenizer_file(const std::string& path) {
  TokenizerFileContent file{.bytes = content_of(path)};
  file.kind = kind_of(file.bytes);
  if (is_tiktoken(file.bytes)) file.bytes = with_settings_beside(path, file.bytes);
  return file;
}

std::string tokenizer_in(const std::string& directory) {
  for (const char* const name : kTokenizerFiles)
    if (const std::string path = in_directory(directory, name);
        has_optional_file(posix_file_system(), path))
      return path;
  return "";
}

Tokenizer::Tokenizer(std::string path, TokenizerFileContent file)
    : path_(std::move(path)),
      file_(std::move(file)),
      hash_(hash_bytes(std::as_bytes(std::span(file_.bytes)))),
      model_(std::make_unique<Model>()) {
  if (file_.kind == TokenizerKind::kSentencePiece) {
    load_sentencepiece(model_->processor, path_, file_.bytes);
    return;
  }
  try {
    model_->subwords.emplace(file_.kind == TokenizerKind::kTiktoken
                                 ? read_tiktoken(file_.bytes)
                                 : read_tokenizer_json(file_.bytes));
  } catch (const Error& defect) {
    throw error("{}: read as {}: {}", path_, name_of(file_.kind), defect.what());
  }
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) { return {path, read_tokenizer_file(path)}; }

const SubwordTokenizer* Tokenizer::subwords() const {
  return model_->subwords ? &*model_->subwords : nullptr;
}

int64_t Tokenizer::vocab_size() const {
  return subwords() ? subwords()->vocab_size() : model_->processor.GetPieceSize();
}
int64_t Tokenizer::bos_id() const {
  return subwords() ? subwords()->parts().bos : model_->processor.bos_id();
}
int64_t Tokenizer::eos_id() const {
  return subwords() ? subwords()->parts().eos : model_->processor.eos_id();
}
int64_t Tokenizer::pad_id() const {
  return subwords() ? subwords()->parts().pad : model_->processor.pad_id();
}
int64_t Tokenizer::unk_id() const {
  return subwords() ? subwords()->parts().unknown : model_->processor.unk_id();
}

void Tokenizer::check_id(int64_t id) const {
  if (id < 0 || id >= vocab_size())
    throw error("{}: id {} is outside the vocabulary, whose ids are 0 to {}", path_, id,
                vocab_size() - 1);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (subwords()) try {
      return subwords()->encode(text);
    } catch (const Error& failure) {
      throw error("{}: {}", path_, failure.what());
    }
  std::vector<int> ids;
  const auto status = model_->processor.Encode(absl::string_view(text.data(), text.size()), &ids);
  if (!status.ok())
    throw error("{}: cannot encode a text of {} bytes: {}", path_, text.size(),
                library_message(status.error_message()));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) check_id(id);
  if (subwords()) return subwords()->decode(ids);
  std::string text;
  const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  if (!status.ok())
    throw error("{}: cannot decode {} ids: {}", path_, ids.size(),
                library_message(status.error_message()));
  return text;
}

std::string Tokenizer::id_to_piece(int64_t id) const {
  check_id(id);
  return subwords() ? subwords()->piece(id) : model_->processor.IdToPiece(static_cast<int>(id));
}

}  // namespace mpt
