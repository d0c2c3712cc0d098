#include "train/stop_points.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "train/stop_signal.h"

namespace mpt {

namespace {
constexpr double kSecondsBetween = 0.1;
}

void StopPoints::begin_step(double seconds) {
  if (seconds > 0 && passed_ > 0)
    every_ = std::max<int64_t>(1, std::llround(std::ceil(double(passed_) * kSecondsBetween / seconds)));
  within_step_ = true;
  passed_ = 0;
  asked_.reset();  // was answered before the last step ended
}

void StopPoints::before_use(int64_t group) {
  inner_.before_use(group);
  leave_alone();
}

void StopPoints::gradients_added(int64_t group) {
  inner_.gradients_added(group);
  leave_alone();
  if (within_step_ && ++passed_ % every_ == 0 && !ranks_.alone()) ask_others();
}

void StopPoints::reduce_amax(const Tensor& values) { inner_.reduce_amax(values); }

// A rank that need not agree with others leaves at any point.
void StopPoints::leave_alone() {
  if (within_step_ && ranks_.alone() && StopSignal::received() != 0) throw StepLeft();
}

void StopPoints::ask_others() {
  if (asked_) {
    ranks_.wait(*asked_);
    if (std::ranges::any_of(all_, [](int64_t signal) { return signal != 0; })) throw StepLeft();
  }
  mine_ = StopSignal::received();
  all_.resize(size_t(ranks_.size()));
  asked_ = ranks_.run([this](Transport& transport) {
    transport.gather_host(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all_)));
  });
}

}  // namespace mpt
