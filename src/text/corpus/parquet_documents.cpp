// Documents of a Parquet file: one per row, in one text column.
#include <string>
#include <string_view>

#include "text/corpus/document_reader.h"
#include "text/corpus/parquet/text_column.h"

namespace mpt {
namespace {

class ParquetReader final : public DocumentReader {
 public:
  ParquetReader(const std::string& path, const DocumentOptions& options)
      : path_(path), column_(path, options.text_field), pieces_(options.max_document_bytes) {}

  Found next(std::string& text) override {
    if (!pieces_.open()) {
      std::string_view document;
      if (!column_.next(document)) return Found::kEnd;
      pieces_.begin(document);
    }
    return pieces_.give(text);
  }
  std::string place(std::string_view) const override {
    return fmt::format("{}: row {}", path_, column_.row());
  }
  int64_t file_bytes_read() const override { return column_.bytes_read(); }

 private:
  std::string path_;
  ParquetTextColumn column_;
  TextCutter pieces_;
};

}  // namespace

std::unique_ptr<DocumentReader> make_parquet_reader(const std::string& path,
                                                    const DocumentOptions& options) {
  return std::make_unique<ParquetReader>(path, options);
}

}  // namespace mpt
