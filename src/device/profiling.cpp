#include "device/profiling.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"

namespace mpt {

double Profile::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Compares names, because equal literals may have different addresses in different files.
size_t Profile::child_of_current(const char* name) {
  const size_t parent = open_.empty() ? 0 : open_.back().node;
  for (const size_t child : tree_[parent].children)
    if (tree_[child].node.name == name) return child;
  tree_.push_back({.node = {.name = name}, .children = {}});
  tree_[parent].children.push_back(tree_.size() - 1);
  return tree_.size() - 1;
}

// Reads the clock last here and first in end(), so that bookkeeping counts for the enclosing scope.
void Profile::begin(const char* name, double flops) {
  const size_t index = child_of_current(name);
  Node& node = tree_[index].node;
  ++node.calls;
  node.flops += flops;
  open_.push_back({index, 0});
  open_.back().start = clock_();
}

void Profile::end() {
  const double now = clock_();
  check(!open_.empty(), "end() without an open profile scope");
  const OpenScope scope = open_.back();
  open_.pop_back();
  const double seconds = now - scope.start;
  Node& node = tree_[scope.node].node;
  node.seconds += seconds;
  node.self_seconds += seconds;
  if (!open_.empty()) tree_[open_.back().node].node.self_seconds -= seconds;
}

void Profile::clear() {
  check(open_.empty(), "profile cleared with {} open scopes", open_.size());
  for (Inner& inner : tree_) inner.node = {.name = inner.node.name};
}

std::vector<Profile::Node> Profile::nodes() const {
  std::vector<Node> all;
  for (const size_t child : tree_[0].children) append(child, 0, all);
  return all;
}

void Profile::append(size_t index, size_t depth, std::vector<Node>& all) const {
  const Inner& inner = tree_[index];
  if (inner.node.calls == 0) return;
  all.push_back(inner.node);
  all.back().depth = depth;
  for (const size_t child : inner.children) append(child, depth + 1, all);
}

}  // namespace mpt
