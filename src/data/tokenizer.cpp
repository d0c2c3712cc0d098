#include "data/tokenizer.h"

#include <exception>
#include <fstream>
#include <iterator>
#include <utility>

#include <sentencepiece_processor.h>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/text.h"
#include "data/sentencepiece_defects.h"

namespace mpt {

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

std::string content_of(const std::string& path) {
  require_regular_file(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw error("{}: cannot be opened for reading", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The library answers by a status, what it builds on by exceptions.
bool accepts(sentencepiece::SentencePieceProcessor& processor, const std::string& bytes) {
  try {
    return processor.LoadFromSerializedProto(bytes).ok();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Tokenizer::Tokenizer(std::string path, std::string bytes)
    : path_(std::move(path)),
      bytes_(std::move(bytes)),
      hash_(hash_bytes(std::as_bytes(std::span(bytes_)))),
      model_(std::make_unique<Model>()) {
  const std::string defect = bytes_.empty() ? "it is empty" : defect_of_model(bytes_);
  if (!defect.empty() || !accepts(model_->processor, bytes_))
    throw error(
        "{}: not a SentencePiece model{}; expected a .model file, as written by `mpretrain "
        "tokenizer`",
        path_, defect.empty() ? "" : ": " + defect);
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) { return {path, content_of(path)}; }

int64_t Tokenizer::vocab_size() const { return model_->processor.GetPieceSize(); }
int64_t Tokenizer::bos_id() const { return model_->processor.bos_id(); }
int64_t Tokenizer::eos_id() const { return model_->processor.eos_id(); }
int64_t Tokenizer::pad_id() const { return model_->processor.pad_id(); }
int64_t Tokenizer::unk_id() const { return model_->processor.unk_id(); }

void Tokenizer::check_id(int64_t id) const {
  if (id < 0 || id >= vocab_size())
    throw error("{}: id {} is outside the vocabulary, whose ids are 0 to {}", path_, id,
                vocab_size() - 1);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = model_->processor.Encode(absl::string_view(text.data(), text.size()), &ids);
  if (!status.ok())
    throw error("{}: cannot encode a text of {} bytes: {}", path_, text.size(),
                library_message(status.error_message()));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) check_id(id);
  std::string text;
  const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  if (!status.ok())
    throw error("{}: cannot decode {} ids: {}", path_, ids.size(),
                library_message(status.error_message()));
  return text;
}

std::string Tokenizer::id_to_piece(int64_t id) const {
  check_id(id);
  return model_->processor.IdToPiece(static_cast<int>(id));
}

}  // namespace mpt
