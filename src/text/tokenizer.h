// Encodes text to token ids and back, with a SentencePiece model, a tokenizer.json or a tiktoken
// file.
//
// encode() and decode() match the corresponding libraries id for id: SentencePiece, tokenizers
// (with add_special_tokens off) and tiktoken (encode_ordinary). The kind of a file is recognised by
// its content. All members are const and thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

class SubwordTokenizer;

enum class TokenizerKind : uint8_t { kSentencePiece, kTokenizerJson, kTiktoken };
template <>
struct EnumNames<TokenizerKind> {
  static constexpr std::array<std::string_view, 3> kNames{"SentencePiece", "tokenizer.json",
                                                          "tiktoken"};
};

// File names of copies, in the order of TokenizerKind.
inline constexpr std::array<const char*, 3> kTokenizerFiles{"tokenizer.model", "tokenizer.json",
                                                            "tokenizer.tiktoken"};

// A tokenizer's file as copied: a tiktoken file is combined with the settings next to it.
struct TokenizerFileContent {
  TokenizerKind kind = TokenizerKind::kSentencePiece;
  std::string bytes;

  [[nodiscard]] const char* name() const { return kTokenizerFiles[size_t(kind)]; }
};
// Does not validate the tokenizer. Throws Error naming the path if it cannot be read or is a
// tiktoken file without settings.
TokenizerFileContent read_tokenizer_file(const std::string& path);

// Path of the tokenizer copy in a directory; "" if there is none.
std::string tokenizer_in(const std::string& directory);

class Tokenizer {
 public:
  // Throws Error naming the path if the file is missing or none of these.
  static Tokenizer load(const std::string& path);
  // Parses a file's content; `path` names it in errors.
  Tokenizer(std::string path, TokenizerFileContent file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& hash() const { return hash_; }  // see core/io/hash.h
  [[nodiscard]] TokenizerKind kind() const { return file_.kind; }
  [[nodiscard]] const char* file_name() const { return file_.name(); }  // for a copy
  [[nodiscard]] const std::string& model_bytes() const {
    return file_.bytes;
  }  // the file itself, for copying
  [[nodiscard]] int64_t vocab_size() const;
  // Returns -1 if the model has no such piece.
  [[nodiscard]] int64_t bos_id() const;
  [[nodiscard]] int64_t eos_id() const;
  [[nodiscard]] int64_t pad_id() const;
  [[nodiscard]] int64_t unk_id() const;

  // Adds neither BOS nor EOS.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  // Omits control pieces and special tokens. Throws Error naming an id outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;
  // Returns "" if the id has no piece.
  [[nodiscard]] std::string id_to_piece(int64_t id) const;

  // For encoding word by word with a tokenizer.json or tiktoken file; null for SentencePiece.
  [[nodiscard]] const SubwordTokenizer* subwords() const;

 private:
  struct Model;
  void check_id(int64_t id) const;

  std::string path_;
  TokenizerFileContent file_;
  std::string hash_;
  std::unique_ptr<Model> model_;
};

}  // namespace mpt
