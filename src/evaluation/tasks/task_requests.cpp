#include "evaluation/tasks/task_requests.h"

#include <algorithm>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "evaluation/tasks/python_text.h"

namespace mpt {
namespace {

int32_t bos_of(const Tokenizer& tokenizer) {
  if (tokenizer.bos_id() < 0) throw error("{} has no BOS piece to prepend", tokenizer.path());
  return int32_t(tokenizer.bos_id());
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text,
                             const RequestOptions& options) {
  std::vector<int32_t> tokens = tokenizer.encode(text);
  if (!options.prepend_bos) return tokens;
  const int32_t bos = bos_of(tokenizer);
  if (!text.starts_with(tokenizer.id_to_piece(bos))) tokens.insert(tokens.begin(), bos);
  return tokens;
}

int32_t token_before_text(const Tokenizer& tokenizer) {
  const int64_t id = tokenizer.bos_id() >= 0 ? tokenizer.bos_id() : tokenizer.eos_id();
  if (id < 0)
    throw error("the context is empty, and {} has neither a BOS nor an EOS piece to stand for it",
                tokenizer.path());
  return int32_t(id);
}

struct Parts {
  std::vector<int32_t> context, continuation;
};

Parts without_context(const Tokenizer& tokenizer, const std::string& continuation) {
  Parts parts{{token_before_text(tokenizer)}, tokenizer.encode(continuation)};
  if (!parts.continuation.empty() && parts.continuation.front() == parts.context.front())
    parts.continuation.erase(parts.continuation.begin());
  return parts;
}

Parts encode_pair(const Tokenizer& tokenizer, const std::string& context,
                  const std::string& continuation, const RequestOptions& options) {
  if (context.empty()) return without_context(tokenizer, continuation);
  const std::vector<int32_t> whole = encoded(tokenizer, context + continuation, options);
  Parts parts{encoded(tokenizer, python_rstrip(context), options), {}};
  if (parts.context.empty()) throw error("the context is only white space");
  const size_t before = std::min(parts.context.size(), whole.size());
  parts.continuation.assign(whole.begin() + std::ptrdiff_t(before), whole.end());
  return parts;
}

}  // namespace

TaskRequest encode_request(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& continuation, const RequestOptions& options) {
  Parts parts = encode_pair(tokenizer, context, continuation, options);
  const int64_t scored = std::ssize(parts.continuation);
  if (scored == 0)
    throw error("the continuation {} has no token of its own after its context",
                describe(Json(continuation)));
  if (scored > options.context)
    throw error("a continuation has {} tokens; the model reads {} at once", scored,
                options.context);
  const int64_t all = std::ssize(parts.context) + scored;
  const int64_t extra = std::max<int64_t>(all - (options.context + 1), 0);
  std::vector<int32_t> tokens;  // exactly sized: a task keeps many
  tokens.reserve(size_t(all - extra));
  tokens.assign(parts.context.begin() + extra, parts.context.end());
  tokens.insert(tokens.end(), parts.continuation.begin(), parts.continuation.end());
  return {std::move(tokens), scored, extra > 0};
}

Task load_task(const TaskFiles& files, const Tokenizer& tokenizer, const RequestOptions& options) {
  Task task{.kind = files.kind};
  for (TaskExample& example : read_task(files.kind, files.files, files.most)) {
    const int64_t first = std::ssize(task.requests);
    for (const std::string& continuation : example.continuations) try {
        task.requests.push_back(encode_request(tokenizer, example.context, continuation, options));
        task.truncated += task.requests.back().truncated ? 1 : 0;
      } catch (const Error& e) {
        throw error("{}: {}", example.place, e.what());
      }
    task.examples.push_back(
        {first, std::move(example.lengths), example.answer, std::move(example.place)});
  }
  return task;
}

}  // namespace mpt
