// Examples of published multiple-choice data sets, in lm-eval's form.
//
// A file has one JSON object per line, with the fields of the data set on the Hugging Face hub;
// other fields are ignored. Texts become contexts and continuations as in lm-eval's task of the
// same name, with zero shots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

// The names are lm-eval's.
//
//   hellaswag                activity_label, ctx_a, ctx_b, endings [text], label (number or digits)
//   arc_easy, arc_challenge  question, choices {text [text], label [text]}, answerKey
//   piqa                     goal, sol1, sol2, label (number)
//   lambada_openai           text
enum class TaskKind : uint8_t { kHellaswag, kArcEasy, kArcChallenge, kPiqa, kLambadaOpenai };
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array<std::string_view, 5> kNames{"hellaswag", "arc_easy", "arc_challenge",
                                                          "piqa", "lambada_openai"};
};

// Returns whether an example asks for the most likely of several continuations, rather than for the
// likelihood of one.
constexpr bool is_multiple_choice(TaskKind kind) { return kind != TaskKind::kLambadaOpenai; }

struct TaskExample {
  std::string context;
  std::vector<std::string> continuations{};  // including the leading space
  std::vector<int64_t> lengths{};            // of the choices in code points, without that space
  int64_t answer = 0;                        // the right one
  std::string place{};                       // "file:line"
};

// Reads all examples of the files (plain, gzip or zstd; "-" for standard input) in order, at most
// `most` of them; 0: all. Throws Error naming file and line of a missing or wrong field, if there
// is no example, and if a line has more than 1 MiB or all of them more than 256 MiB.
std::vector<TaskExample> read_task(TaskKind kind, const std::vector<std::string>& files,
                                   int64_t most);

}  // namespace mpt
