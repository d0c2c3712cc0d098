#include "train/ranks.h"

#include <chrono>

#include <spdlog/spdlog.h>

#include "comm/transports.h"

namespace mpt {

RankShape shape_of(const Collectives* ranks) {
  return ranks == nullptr ? RankShape{} : RankShape{ranks->rank(), ranks->size()};
}

RankGroup rank_group(Collectives* ranks) {
  if (ranks == nullptr) return {};
  return {.rank = ranks->rank(),
          .size = ranks->size(),
          .gather = [ranks](std::span<const std::byte> mine, std::span<std::byte> all) {
            ranks->wait(ranks->run([&] { ranks->transport().gather_host(mine, all); }));
          }};
}

void or_abort(Collectives* ranks, const std::function<void()>& work) {
  if (ranks == nullptr) return work();
  try {
    work();
  } catch (const std::exception& failure) {
    spdlog::error("rank {} of {}: {}", ranks->rank(), ranks->size(), failure.what());
    ranks->transport().abort(failure.what());
    throw;
  }
}

Ranks::Ranks(const LaunchEnvironment& environment, const DistributedConfig& config, Device& device) {
  if (environment.size == 1) return;
  queue_ = device.make_side_queue();
  transport_ = make_transport(environment, {.timeout = std::chrono::seconds(config.timeout_seconds),
                                            .backend = device.backend(),
                                            .stream = queue_->cuda_stream()});
  collectives_.emplace(*transport_, *queue_);
  device_ = &device;
  device.guard_waits([this](const std::function<void()>& wait) { transport_->wait_for_device(wait); });
}

Ranks::~Ranks() {
  if (device_ != nullptr) device_->guard_waits({});
}

}  // namespace mpt
