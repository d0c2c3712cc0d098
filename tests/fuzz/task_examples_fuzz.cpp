// Reads any bytes after the name of a task as its examples.
#include "evaluation/tasks/task_examples.h"
#include "fuzz/input_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string path = fuzz::write_input("examples.jsonl", text.substr(line));
  fuzz::accept_or_refuse([&] {
    const auto kind = enum_from_name<TaskKind>(text.substr(0, line));
    if (!kind) throw error("no task");
    for (const TaskExample& example : read_task(*kind, {path}, 0)) {
      check(example.continuations.size() == example.lengths.size(), "{} continuations, {} lengths",
            example.continuations.size(), example.lengths.size());
      check(example.answer >= 0 && example.answer < std::ssize(example.continuations), "answer {}",
            example.answer);
    }
  });
  return 0;
}
