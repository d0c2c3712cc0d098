// Another device, of whose ranges (range.h) the time is taken. A device that is not wrapped in one measures
// nothing.
//
// Work is waited for where a range begins and where it ends, so that it counts for the range that asked for
// it. That is slower than work that overlaps, and cannot be recorded as a graph. The results are the same.
#pragma once

#include "device/forwarding_device.h"
#include "device/profile.h"

namespace mpt {

class ProfilingDevice final : public ForwardingDevice {
 public:
  // Both outlive this.
  ProfilingDevice(Device& inner, Profile& profile) : ForwardingDevice(inner), profile_(profile) {}

  void push_range(const char* name, double flops) override {
    inner_.synchronize();
    inner_.push_range(name, flops);
    profile_.begin(name, flops);
  }
  void pop_range() override {
    inner_.synchronize();
    profile_.end();
    inner_.pop_range();
  }
  // Nothing is recorded: it could not be waited for.
  std::unique_ptr<RepeatedWork> make_repeated_work() override { return Device::make_repeated_work(); }

 private:
  Profile& profile_;
};

}  // namespace mpt
