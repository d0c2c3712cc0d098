#include "text/subword/regex.h"

#include <pcre2.h>

#include "core/check.h"

namespace mpt {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 14;
constexpr size_t kFirstStackBytes = 32 << 10, kMostStackBytes = 1 << 20;
constexpr uint32_t kMostMatchSteps = 10'000'000;  // per search
constexpr uint32_t kMostHeapKiB = 16 << 10;       // per search

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Per-thread state of a search.
struct SearchState {
  SearchState()
      : matched(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr)) {
    check(matched != nullptr && context != nullptr, "no memory for a search");
    pcre2_set_match_limit(context, kMostMatchSteps);
    pcre2_set_heap_limit(context, kMostHeapKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~SearchState() {
    pcre2_match_data_free(matched);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  SearchState(const SearchState&) = delete;
  SearchState& operator=(const SearchState&) = delete;

  pcre2_match_data* matched;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;  // null if the library has no JIT compiler
};

PCRE2_SPTR pcre_text(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

void Regex::compile(std::string_view pattern, uint32_t options) {
  int failure = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_.reset(pcre2_compile(pcre_text(pattern), pattern.size(), options | PCRE2_UTF, &failure, &at,
                            context.get()));
  if (!code_) throw error("the regular expression '{}': {}", pattern_, message_of(failure));
  uint32_t can_be_empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &can_be_empty);
  if (can_be_empty != 0)
    throw error("the regular expression '{}' can match the empty text; expected one that cannot",
                pattern_);
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // falls back to the interpreter
}

Regex::Regex(std::string_view pattern, RegexSyntax syntax) : pattern_(pattern) {
  if (pattern.size() > kMaxPatternBytes)
    throw error("the regular expression has {} bytes; at most {} are accepted", pattern.size(),
                kMaxPatternBytes);
  std::string translated;
  try {
    translated = pcre2_pattern(pattern, syntax);
  } catch (const Error& refusal) {
    throw error("the regular expression '{}': {}", pattern, refusal.what());
  }
  compile(translated, PCRE2_UCP);
}

Regex Regex::of_text(std::string_view text) {
  Regex regex;
  regex.pattern_ = text;
  regex.compile(text, PCRE2_LITERAL);
  return regex;
}

std::optional<TextRange> Regex::find(std::string_view text, size_t from) const {
  thread_local const SearchState state;
  const int found = pcre2_match(code_.get(), pcre_text(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                                state.matched, state.context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    throw error("the regular expression '{}' cannot be searched for in a text of {} bytes: {}",
                pattern_, text.size(), message_of(found));
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(state.matched);
  return TextRange{range[0], range[1]};
}

}  // namespace mpt
