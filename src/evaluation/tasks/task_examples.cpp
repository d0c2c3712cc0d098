#include "evaluation/tasks/task_examples.h"

#include <algorithm>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/json/json_scan.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "core/text/utf8.h"
#include "evaluation/tasks/python_text.h"
#include "text/corpus/input_stream.h"

namespace mpt {
namespace {

using AnyJson = nlohmann::json;  // parses objects in time linear in their number of keys

constexpr size_t kMostLineBytes = 1 << 20;
constexpr int64_t kMostTaskBytes = 256 << 20;  // of all lines of a task
constexpr size_t kMostChoices = 64;

// --- fields --------------------------------------------------------------------------------------

// For messages.
std::string shown_field(const AnyJson& value) {
  if (value.is_object()) return "an object";
  return value.is_array() ? "a list" : describe(Json(value));
}

const AnyJson& field(const AnyJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw error("{} is missing", key);
  return *found;
}

std::string checked_text(const AnyJson& value, const char* key) {
  const auto& text = value.get_ref<const std::string&>();
  if (const std::string defect = defect_of_text(text); !defect.empty())
    throw error("{} {}", key, defect);
  return text;
}

std::string text_of(const AnyJson& object, const char* key) {
  const AnyJson& value = field(object, key);
  if (!value.is_string()) throw error("{}: expected a text, found {}", key, shown_field(value));
  return checked_text(value, key);
}

std::vector<std::string> texts_of(const AnyJson& object, const char* key) {
  const AnyJson& value = field(object, key);
  if (!value.is_array())
    throw error("{}: expected a list of texts, found {}", key, shown_field(value));
  if (value.empty() || value.size() > kMostChoices)
    throw error("{}: expected 1 to {} texts, found {}", key, kMostChoices, value.size());
  std::vector<std::string> texts;
  for (const AnyJson& text : value) {
    if (!text.is_string())
      throw error("{}: expected texts, found among them {}", key, shown_field(text));
    texts.push_back(checked_text(text, key));
  }
  return texts;
}

// Returns an index into a list of `count`, given as a number or its digits.
int64_t place_of(const AnyJson& object, const char* key, size_t count) {
  const AnyJson& value = field(object, key);
  for (size_t i = 0; i < count; ++i)
    if (value == AnyJson(i) || value == AnyJson(std::to_string(i))) return int64_t(i);
  throw error("{}: expected a number from 0 to {}, found {}", key, count - 1, shown_field(value));
}

// --- preprocessing -------------------------------------------------------------------------------

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  while (true) {
    const size_t at = text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

// Removes the matches of the regular expression \[.*?\], within a line.
std::string without_brackets(std::string_view text) {
  std::string result;
  size_t end = text.find_first_of("]\n");  // the first from i on
  for (size_t i = 0; i < text.size(); ++i) {
    if (end < i) end = text.find_first_of("]\n", i);
    if (text[i] == '[' && end < text.size() && text[end] == ']')
      i = end;
    else
      result += text[i];
  }
  return result;
}

// preprocess() of lm-eval's tasks/hellaswag/utils.py.
std::string preprocessed(std::string_view text) {
  return replaced_all(without_brackets(replaced_all(python_strip(text), " [title]", ". ")), "  ",
                      " ");
}

// --- tasks ---------------------------------------------------------------------------------------

TaskExample with_choices(std::string context, const std::vector<std::string>& choices,
                         int64_t answer) {
  TaskExample example{.context = std::move(context), .answer = answer};
  for (const std::string& choice : choices) {
    example.continuations.push_back(" " + choice);
    example.lengths.push_back(python_length(choice));
  }
  return example;
}

TaskExample hellaswag(const AnyJson& line) {
  const std::string activity = text_of(line, "activity_label"), ctx_a = text_of(line, "ctx_a"),
                    ctx_b = text_of(line, "ctx_b");
  std::vector<std::string> endings = texts_of(line, "endings");
  for (std::string& ending : endings) ending = preprocessed(ending);
  return with_choices(preprocessed(activity + ": " + ctx_a + " " + python_capitalize(ctx_b)),
                      endings, place_of(line, "label", endings.size()));
}

std::string question(const std::string& text) { return "Question: " + text + "\nAnswer:"; }

TaskExample arc(const AnyJson& line) {
  const AnyJson& choices = field(line, "choices");
  if (!choices.is_object())
    throw error("choices: expected an object of text and label, found {}", shown_field(choices));
  const std::vector<std::string> texts = texts_of(choices, "text"),
                                 labels = texts_of(choices, "label");
  if (texts.size() != labels.size())
    throw error("choices: has {} and {}", counted(std::ssize(texts), "text"),
                counted(std::ssize(labels), "label"));
  const auto found = std::ranges::find(labels, text_of(line, "answerKey"));
  if (found == labels.end())
    throw error("answerKey: expected one of choices.label, {}, found {}", describe(Json(labels)),
                shown_field(line.at("answerKey")));
  return with_choices(question(text_of(line, "question")), texts, found - labels.begin());
}

TaskExample piqa(const AnyJson& line) {
  const std::string goal = text_of(line, "goal"), sol1 = text_of(line, "sol1"),
                    sol2 = text_of(line, "sol2");
  return with_choices(question(goal), {sol1, sol2}, place_of(line, "label", 2));
}

// Splits off the last word, with the space before it.
TaskExample lambada(const AnyJson& line) {
  const std::string text = text_of(line, "text");
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) return with_choices("", {text}, 0);
  return with_choices(text.substr(0, space), {text.substr(space + 1)}, 0);
}

TaskExample example_of(TaskKind kind, const AnyJson& line) {
  switch (kind) {
    case TaskKind::kHellaswag:
      return hellaswag(line);
    case TaskKind::kArcEasy:
    case TaskKind::kArcChallenge:
      return arc(line);
    case TaskKind::kPiqa:
      return piqa(line);
    case TaskKind::kLambadaOpenai:
      return lambada(line);
  }
  return {};
}

// For messages.
std::string_view fields_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kHellaswag:
      return "activity_label, ctx_a, ctx_b, endings, label";
    case TaskKind::kArcEasy:
    case TaskKind::kArcChallenge:
      return "question, choices, answerKey";
    case TaskKind::kPiqa:
      return "goal, sol1, sol2, label";
    case TaskKind::kLambadaOpenai:
      return "text";
  }
  return "";
}

AnyJson parsed(const std::string& line) {
  AnyJson value;
  try {
    value = parse_json_line(line);
  } catch (const Error& defect) {
    throw error("is not JSON: {}", defect.what());
  }
  if (!value.is_object()) throw error("expected an object, found {}", shown_field(value));
  return value;
}

// Returns false at the end.
bool next_line(LineReader& reader, std::string& line) {
  line.clear();
  const LineReader::Piece piece = reader.next_piece(line, kMostLineBytes);
  if (piece == LineReader::Piece::kPartial)
    throw error("{}:{}: the line is longer than {}", reader.stream().path(), reader.line_number(),
                format_bytes(double(kMostLineBytes)));
  return piece == LineReader::Piece::kLine;
}

class ExampleReader {
 public:
  ExampleReader(TaskKind kind, int64_t most) : kind_(kind), most_(most) {}

  void read(const std::string& path) {
    LineReader reader(path);
    std::string line;
    for (int64_t number = 1; wants_more() && next_line(reader, line); ++number)
      if (!is_blank(line)) take(line, fmt::format("{}:{}", reader.stream().path(), number));
  }
  std::vector<TaskExample> examples() { return std::move(examples_); }

 private:
  [[nodiscard]] bool wants_more() const { return most_ == 0 || std::ssize(examples_) < most_; }

  void take(const std::string& line, std::string place) {
    bytes_ += std::ssize(line);
    if (bytes_ > kMostTaskBytes)
      throw error("{}: there is more than {} of {}", place, format_bytes(double(kMostTaskBytes)),
                  name_of(kind_));
    try {
      examples_.push_back(example_of(kind_, parsed(line)));
    } catch (const Error& e) {
      throw error("{}: {} (a line of {} is a JSON object with {})", place, e.what(), name_of(kind_),
                  fields_of(kind_));
    }
    examples_.back().place = std::move(place);
  }

  TaskKind kind_;
  int64_t most_, bytes_ = 0;
  std::vector<TaskExample> examples_;
};

}  // namespace

std::vector<TaskExample> read_task(TaskKind kind, const std::vector<std::string>& files,
                                   int64_t most) {
  ExampleReader reader(kind, most);
  for (const std::string& path : files) reader.read(path);
  std::vector<TaskExample> examples = reader.examples();
  if (examples.empty())
    throw error("{}: has no example of {}", fmt::join(files, ", "), name_of(kind));
  return examples;
}

}  // namespace mpt
