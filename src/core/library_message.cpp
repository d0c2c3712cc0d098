#include "core/library_message.h"

namespace mpt {
namespace {

bool drop_front(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

std::string_view without_exception_name(std::string_view text) {
  if (!text.starts_with("[json.exception.")) return text;
  const size_t end = text.find("] ");
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
  drop_front(text, "parse error at ");
  return text;
}

// SentencePiece: the kind of failure, "file(line)", "[condition]", and a sentence or nothing.
std::string_view without_source_file(std::string_view text) {
  for (const std::string_view ending : {".cc(", ".cpp(", ".h("}) {
    if (text.find(ending) == std::string_view::npos) continue;
    const size_t end = text.rfind("] ");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
    break;
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string library_message(std::string_view what) {
  constexpr size_t kMost = 300;
  std::string_view text = without_source_file(without_exception_name(what));
  if (text.size() <= kMost) return std::string(text);
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within a character
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace mpt
