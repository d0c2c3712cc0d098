// Text to token ids and back with a SentencePiece model.
//
// encode() and decode() match SentencePiece's own tools id for id. All members are const and
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

class Tokenizer {
 public:
  // Throws Error naming the path if the file is missing or not a SentencePiece model.
  static Tokenizer load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& hash() const { return hash_; }  // of the file, as core/io/hash.h
  [[nodiscard]] const std::string& model_bytes() const {
    return bytes_;
  }  // the file itself, to copy it
  [[nodiscard]] int64_t vocab_size() const;
  // -1 if the model has no such piece.
  [[nodiscard]] int64_t bos_id() const;
  [[nodiscard]] int64_t eos_id() const;
  [[nodiscard]] int64_t pad_id() const;
  [[nodiscard]] int64_t unk_id() const;

  // Adds neither BOS nor EOS.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  // Throws Error naming an id outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;
  [[nodiscard]] std::string id_to_piece(int64_t id) const;

 private:
  struct Model;
  Tokenizer(std::string path, std::string bytes);
  void check_id(int64_t id) const;

  std::string path_;
  std::string bytes_;
  std::string hash_;
  std::unique_ptr<Model> model_;
};

}  // namespace mpt
