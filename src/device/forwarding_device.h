// A device that does what another one does, for decorators to override single calls of.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/device.h"

namespace mpt {

class ForwardingDevice : public Device {
 public:
  // `inner` outlives this.
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  [[nodiscard]] Backend backend() const override { return inner_.backend(); }
  [[nodiscard]] CUstream_st* cuda_stream() const override { return inner_.cuda_stream(); }
  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] std::string libraries() const override { return inner_.libraries(); }
  [[nodiscard]] int64_t memory_bytes() const override { return inner_.memory_bytes(); }
  [[nodiscard]] int64_t alignment() const override { return inner_.alignment(); }
  std::unique_ptr<Allocator> make_allocator() override { return inner_.make_allocator(); }
  void download(const Tensor& source, std::byte* target) override { inner_.download(source, target); }
  void upload(const std::byte* source, const Tensor& target) override { inner_.upload(source, target); }
  void synchronize() override { inner_.synchronize(); }
  void send(const Staged& staged) override { inner_.send(staged); }
  void receive(const Staged& staged) override { inner_.receive(staged); }
  std::unique_ptr<RepeatedWork> make_repeated_work() override { return inner_.make_repeated_work(); }
  void guard_waits(WaitGuard guard) override { inner_.guard_waits(std::move(guard)); }
  std::unique_ptr<SideQueue> make_side_queue() override { return inner_.make_side_queue(); }
  std::unique_ptr<DeviceReader> make_reader() override { return inner_.make_reader(); }
  void push_range(const char* name, double flops) override { inner_.push_range(name, flops); }
  void pop_range() override { inner_.pop_range(); }
  Gemm& gemm() override { return inner_.gemm(); }
  Attention& attention() override { return inner_.attention(); }

 protected:
  Device& inner_;
};

}  // namespace mpt
