// Time by named stretch (range.h), as a tree: the same name within the same stretch is one node.
//
// The time of a node is that of all its stretches, from beginning to end; its self time is what of that lies
// in none of its children, so self times add up to the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace mpt {

class Profile {
 public:
  using Clock = std::function<double()>;  // seconds since whenever

  struct Node {
    std::string_view name;
    size_t depth = 0;  // 0: within nothing
    int64_t calls = 0;
    double seconds = 0;
    double self_seconds = 0;
    double flops = 0;
  };

  explicit Profile(Clock clock = steady_seconds) : clock_(std::move(clock)) {}

  // Stretches end in the reverse order of their beginning. `name` is kept: a literal.
  void begin(const char* name, double flops = 0);
  void end();

  // Forgets what was measured and keeps the order of the nodes. Not within a stretch.
  void clear();

  // Parents before their children, children as they were first seen; those without a call are left out.
  [[nodiscard]] std::vector<Node> nodes() const;

  static double steady_seconds();

 private:
  struct Stretch {
    size_t node;
    double start;
  };
  struct Inner {
    Node node;
    std::vector<size_t> children;
  };

  size_t child_of_current(const char* name);
  void append(size_t index, size_t depth, std::vector<Node>& all) const;

  Clock clock_;
  std::vector<Inner> tree_{1};   // its root stands for everything and is no stretch
  std::vector<Stretch> open_{};  // innermost last
};

}  // namespace mpt
