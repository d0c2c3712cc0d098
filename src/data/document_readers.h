// The documents of one file, for each kind of file a corpus may have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/check.h"
#include "data/input_stream.h"

namespace mpt {

// A document that cannot be used, as opposed to a file that cannot: reading can go on behind it.
class BadDocument : public Error {
 public:
  using Error::Error;
};

class DocumentReader {
 public:
  enum class Found {
    kDocument,
    kPiece,  // of a document longer than the limit, which goes on in the next one
    kEnd,
  };

  virtual ~DocumentReader() = default;
  // `text` may be blank and need not be UTF-8. Throws BadDocument, naming file and line.
  virtual Found next(std::string& text) = 0;
  // The line where the text of the last next() begins, from 1.
  [[nodiscard]] virtual int64_t first_line() const = 0;
  [[nodiscard]] virtual const InputStream& stream() const = 0;
};

struct DocumentOptions {
  std::string text_field;      // of JSON objects
  int64_t max_document_bytes;  // longer ones are cut
};

enum class TextKind { kPlainText, kJsonLines };

// By the name, without a final ".gz". Throws Error for any other name.
TextKind text_kind_of(const std::string& path);

std::unique_ptr<DocumentReader> make_document_reader(const std::string& path, const DocumentOptions& options);

}  // namespace mpt
