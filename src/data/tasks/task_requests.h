// The tokens of contexts and continuations, as lm-eval gives them to a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tasks/task_examples.h"
#include "data/tokenizer.h"

namespace mpt {

// How likely is the end of these tokens, after those before it?
struct TaskRequest {
  std::vector<int32_t> tokens;  // at most the model's context and one, which is not read
  int64_t continuation = 0;     // how many of them, at least 1 and fewer than all
  bool truncated = false;       // the beginning of the context is left out
};

struct RequestOptions {
  int64_t context;           // tokens that a model reads at once
  bool prepend_bos = false;  // before every text that does not begin with it
};

// encode_pair() of lm-eval: white space at the end of the context is moved to the continuation, and
// the tokens of the continuation are those of both texts at once beyond as many as the context has
// alone. An empty context is BOS, else EOS. What is longer than the context loses its beginning.
//
// Throws Error if a continuation has no token or does not fit, if a context is white space alone
// (both stop lm-eval), or if BOS or EOS is needed and there is none.
TaskRequest encode_request(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& continuation, const RequestOptions& options);

struct Task {
  TaskKind kind{};
  std::vector<TaskRequest> requests{};  // of each continuation of each example
  // Of an example.
  struct Choices {
    int64_t first = 0;               // request
    std::vector<int64_t> lengths{};  // of TaskExample; one for each request
    int64_t answer = 0;
    std::string place{};  // "file:line"
  };
  std::vector<Choices> examples{};
  int64_t truncated = 0;  // requests that lost the beginning of their context
};

struct TaskFiles {
  TaskKind kind{};
  std::vector<std::string> files{};
  int64_t most = 0;  // examples; 0: all
};
// read_task() and its requests. Messages name file and line.
Task load_task(const TaskFiles& files, const Tokenizer& tokenizer, const RequestOptions& options);

}  // namespace mpt
