// Times of named scopes, with a clock controlled by the test.
#include "device/profiling.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "device/device.h"
#include "support/host_memory_device.h"

namespace mpt::test {
namespace {

class ProfileTest : public testing::Test {
 protected:
  // Returns nodes as text: depth, name, calls, total and self seconds.
  [[nodiscard]] std::vector<std::string> shown() const {
    std::vector<std::string> all;
    for (const Profile::Node& n : profile_.nodes())
      all.push_back(
          fmt::format("{} {} {} {} {}", n.depth, n.name, n.calls, n.seconds, n.self_seconds));
    return all;
  }
  void scope(const char* name, double seconds) {
    profile_.begin(name);
    now_ += seconds;
    profile_.end();
  }

  double now_ = 1000;
  Profile profile_{[this] { return now_; }};
};

using Lines = std::vector<std::string>;

TEST_F(ProfileTest, NothingWasMeasured) {
  EXPECT_EQ(shown(), Lines{});
  profile_.clear();
  EXPECT_EQ(shown(), Lines{});
}

TEST_F(ProfileTest, SelfTimeIsWhatNoInnerSpanTakes) {
  profile_.begin("step");
  now_ += 1;
  profile_.begin("forward");
  now_ += 2;
  scope("norm", 4);
  now_ += 8;
  scope("product", 16);
  profile_.end();
  now_ += 32;
  profile_.end();
  EXPECT_EQ(shown(),
            (Lines{"0 step 1 63 33", "1 forward 1 30 10", "2 norm 1 4 4", "2 product 1 16 16"}));
}

// Even if the name is another object.
TEST_F(ProfileTest, TheSameNameInTheSameSpanIsOneNode) {
  const std::string again = "norm";
  for (const char* half : {"forward", "backward", "forward"}) {
    profile_.begin(half);
    scope("norm", 1);
    scope(again.c_str(), 2);
    profile_.end();
  }
  EXPECT_EQ(shown(),
            (Lines{"0 forward 2 6 0", "1 norm 4 6 6", "0 backward 1 3 0", "1 norm 2 3 3"}));
}

TEST_F(ProfileTest, ASpanWithinItsOwnNameIsAnotherNode) {
  profile_.begin("norm");
  scope("norm", 1);
  now_ += 2;
  profile_.end();
  EXPECT_EQ(shown(), (Lines{"0 norm 1 3 2", "1 norm 1 1 1"}));
}

TEST_F(ProfileTest, FlopsAddUp) {
  for (const double flops : {3.0, 5.0}) {
    profile_.begin("product", flops);
    profile_.end();
  }
  EXPECT_EQ(profile_.nodes().at(0).flops, 8);
}

TEST_F(ProfileTest, WhatIsClearedKeepsItsPlace) {
  scope("first", 1);
  scope("second", 2);
  profile_.clear();
  EXPECT_EQ(shown(), Lines{});
  scope("second", 4);
  scope("first", 8);
  EXPECT_EQ(shown(), (Lines{"0 first 1 8 8", "0 second 1 4 4"}));
}

TEST_F(ProfileTest, SpanesMustMatch) {
  EXPECT_THROW(profile_.end(), LogicError);
  profile_.begin("step");
  EXPECT_THROW(profile_.clear(), LogicError);
}

// --- ranges of a device --------------------------------------------------------------------------

// A device whose work takes time only when it is waited for.
class SlowDevice final : public ForwardingDevice {
 public:
  SlowDevice(Device& inner, double& clock) : ForwardingDevice(inner), clock_(clock) {}
  void enqueue(double seconds) { pending_ += seconds; }
  void synchronize() override { clock_ += std::exchange(pending_, 0); }
  std::unique_ptr<GraphCapture> make_graph_capture() override {
    throw std::logic_error("work that nobody could wait for");
  }

 private:
  double& clock_;
  double pending_ = 0;
};

TEST_F(ProfileTest, WorkCountsForTheRangeThatAskedForIt) {
  HostMemoryDevice host;
  SlowDevice slow(host, now_);
  ProfilingDevice device(slow, profile_);
  slow.enqueue(1);  // before any range
  {
    const ProfileScope outer(device, "step");
    slow.enqueue(2);
    {
      const ProfileScope inner(device, "product", 10.0);
      slow.enqueue(4);
    }
    slow.enqueue(8);
  }
  EXPECT_EQ(shown(), (Lines{"0 step 1 14 10", "1 product 1 4 4"}));
  EXPECT_EQ(profile_.nodes().at(1).flops, 10);
}

TEST_F(ProfileTest, CapturedWorkIsNotRecorded) {
  HostMemoryDevice host;
  SlowDevice slow(host, now_);
  ProfilingDevice device(slow, profile_);
  const std::unique_ptr<GraphCapture> work = device.make_graph_capture();
  for (int i = 0; i < 3; ++i) work->run([&] { const ProfileScope scope(device, "step"); });
  EXPECT_FALSE(work->replayed());
  EXPECT_EQ(profile_.nodes().at(0).calls, 3);
}

}  // namespace
}  // namespace mpt::test
