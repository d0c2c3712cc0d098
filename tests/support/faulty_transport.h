// A transport that fails at a chosen call of a chosen rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "core/check.h"
#include "support/forwarding_transport.h"

namespace mpt::test {

// kThrow    the call throws Error and is not made
// kHang     the call is made after a delay of `hang`
// kCorrupt  the call is made, and one bit of its result, if not empty, is flipped on this rank
enum class CommFault : uint8_t { kThrow, kHang, kCorrupt };

struct FaultyCall {
  int64_t rank = 0;
  int64_t call = 1;  // calls of this rank, all operations together, from 1
  CommFault fault = CommFault::kThrow;
  std::chrono::milliseconds hang{};
};

class FaultyTransport final : public ForwardingTransport {
 public:
  // `inner` must outlive this object.
  FaultyTransport(Transport& inner, FaultyCall faulty)
      : ForwardingTransport(inner), faulty_(faulty) {}

  [[nodiscard]] int64_t calls() const { return calls_; }

  [[nodiscard]] std::string name() const override { return inner_.name() + ", faulty"; }

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    begin("reduce_scatter_sum");
    inner_.reduce_scatter_sum(parts, sum);
    end(sum);
  }
  void all_gather(std::span<const Tensor> parts) override {
    begin("all_gather");
    inner_.all_gather(parts);
    end(parts[size_t(parts.size() - 1 - size_t(rank()))]);
  }
  void all_reduce_max(const Tensor& values) override {
    begin("all_reduce_max");
    inner_.all_reduce_max(values);
    end(values);
  }
  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    begin("gather_host");
    inner_.gather_host(mine, all);
    end(all);
  }
  void broadcast_host(std::span<std::byte> bytes, int64_t root) override {
    begin("broadcast_host");
    inner_.broadcast_host(bytes, root);
    end(bytes);
  }
  void barrier() override {
    begin("barrier");
    inner_.barrier();
  }

 private:
  [[nodiscard]] bool now(CommFault fault) const {
    return inner_.rank() == faulty_.rank && calls_ == faulty_.call && faulty_.fault == fault;
  }
  void begin(const char* operation) {
    ++calls_;
    if (now(CommFault::kThrow))
      throw error("faulty transport: call {}, {}, fails", calls_, operation);
    if (now(CommFault::kHang)) std::this_thread::sleep_for(faulty_.hang);
  }
  void end(std::span<std::byte> result) const {
    if (now(CommFault::kCorrupt) && !result.empty()) result[result.size() / 2] ^= std::byte{0x10};
  }
  void end(const Tensor& result) const {
    end({result.data, size_t(result.elements() * size_of(result.dtype))});
  }

  FaultyCall faulty_;
  int64_t calls_ = 0;
};

}  // namespace mpt::test
