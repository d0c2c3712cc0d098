// Tokens of contexts and continuations, as lm-eval feeds them to a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluation/tasks/task_examples.h"
#include "text/tokenizer.h"

namespace mpt {

// Asks for the likelihood of the last of these tokens, given those before them.
struct TaskRequest {
  std::vector<int32_t> tokens;  // at most the model's context plus one, which is not read
  int64_t continuation = 0;     // the number of last tokens, at least 1 and fewer than all
  bool truncated = false;       // the beginning of the context is dropped
};

struct RequestOptions {
  int64_t context;           // tokens that a model reads at once
  bool prepend_bos = false;  // before every text that does not begin with it
};

// encode_pair() of lm-eval: white space at the end of the context is moved to the continuation, and
// the tokens of the continuation are those of both texts together, minus as many from the front as
// the context has by itself. An empty context is BOS, else EOS. A request longer than the model's
// context loses its beginning.
//
// Throws Error if a continuation has no token or does not fit, if a context is only white space
// (both stop lm-eval), or if BOS or EOS is needed and there is none.
TaskRequest encode_request(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& continuation, const RequestOptions& options);

struct Task {
  TaskKind kind{};
  std::vector<TaskRequest> requests{};  // of each continuation of each example
  // Requests of one example.
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
// Calls read_task() and encodes its requests. Messages name file and line.
Task load_task(const TaskFiles& files, const Tokenizer& tokenizer, const RequestOptions& options);

}  // namespace mpt
