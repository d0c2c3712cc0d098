// The ranks of a run as what only exchanges host memory sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

struct RankGroup {
  int64_t rank = 0, size = 1;
  // As Transport::gather_host(); none where there is one rank.
  std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)> gather{};
};

// What every rank gives, in the order of ranks. Collective.
std::vector<int64_t> gather_numbers(const RankGroup& ranks, int64_t mine);
std::vector<std::string> gather_texts(const RankGroup& ranks, std::string_view mine);

// Runs the work on every rank. Where it throws Error on some, an Error that names the rank and says why is
// thrown on all. Collective.
void together(const RankGroup& ranks, const std::function<void()>& work);

}  // namespace mpt
