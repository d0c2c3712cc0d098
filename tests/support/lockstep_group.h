// Emulates groups of a GPU on the host: the lanes of a group are threads that meet in reduce_max().
//
//   run_lockstep<32>(blocks, f)   f(group, block) for every block, by 32 lanes, like exec.blocks()
//
// A formula that gives the same bits here and with SerialGroup depends neither on the number of
// lanes nor on which lane owns an element.
#pragma once

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace mpt::test {

template <int kWidth>
struct LockstepTeam {
  std::array<float, kWidth> slots{};
  std::barrier<> barrier{kWidth};
};

template <int kWidth>
class LockstepGroup {
 public:
  static constexpr int kLanes = kWidth;

  LockstepGroup(LockstepTeam<kWidth>& team, int64_t lane) : team_(&team), lane_(lane) {}

  [[nodiscard]] int64_t lane() const { return lane_; }
  [[nodiscard]] float reduce_max(float x, int lanes = kWidth) const {
    team_->slots[size_t(lane_)] = x;
    team_->barrier.arrive_and_wait();
    const auto first = team_->slots.begin() + lane_ / lanes * lanes;
    const float most = *std::max_element(first, first + lanes);
    team_->barrier.arrive_and_wait();
    return most;
  }

 private:
  LockstepTeam<kWidth>* team_;
  int64_t lane_;
};

template <int kWidth, class F>
void run_lockstep(int64_t blocks, const F& f) {
  LockstepTeam<kWidth> team;
  std::vector<std::jthread> lanes;
  for (int64_t lane = 0; lane < kWidth; ++lane)
    lanes.emplace_back([&team, &f, lane, blocks] {
      for (int64_t block = 0; block < blocks; ++block) f(LockstepGroup<kWidth>(team, lane), block);
    });
}

}  // namespace mpt::test
