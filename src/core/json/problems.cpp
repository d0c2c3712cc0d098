#include "core/json/problems.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/check.h"

namespace mpt {

void throw_problems(const Problems& problems) {
  constexpr size_t kMaxShown = 20;
  if (problems.empty()) return;
  const std::vector<std::string> shown(problems.begin(),
                                       problems.begin() + std::min(problems.size(), kMaxShown));
  const size_t hidden = problems.size() - shown.size();
  throw error("{}{}", fmt::join(shown, "\n"),
              hidden ? fmt::format("\n... and {} more", hidden) : "");
}

void throw_many_problems(const Problems& problems) {
  constexpr size_t kMany = 100;
  if (problems.size() >= kMany) throw_problems(problems);
}

}  // namespace mpt
