#include "core/text/library_message.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text/shown_text.h"

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

// SentencePiece messages: the kind of failure, "file(line)", "[condition]", and possibly a
// sentence.
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
  return shortened(without_source_file(without_exception_name(what)), 300);
}

}  // namespace mpt
