// Time per named scope (ProfileScope), and the device that measures it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"

namespace mpt {

// Tree of times by name: scopes of equal name within the same parent share a node.
//
// A node's time is the total of all its scopes from begin to end; its self time excludes its
// children, so self times add up to the whole.
class Profile {
 public:
  using Clock = std::function<double()>;  // seconds since an arbitrary origin

  struct Node {
    std::string_view name;
    size_t depth = 0;  // 0: top level
    int64_t calls = 0;
    double seconds = 0;
    double self_seconds = 0;
    double flops = 0;
  };

  explicit Profile(Clock clock = steady_seconds) : clock_(std::move(clock)) {}

  // Scopes end in reverse order of their start. `name` must be a literal: the pointer is kept.
  void begin(const char* name, double flops = 0);
  void end();

  // Clears the measurements but keeps the order of the nodes. Must not be called within a scope.
  void clear();

  // Parents before children, children in order of first appearance; nodes without calls are
  // omitted.
  [[nodiscard]] std::vector<Node> nodes() const;

  static double steady_seconds();

 private:
  struct OpenScope {
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
  std::vector<Inner> tree_{1};     // the root represents everything and is not a scope
  std::vector<OpenScope> open_{};  // innermost last
};

// Forwards every call to another device; decorators override single calls.
class ForwardingDevice : public Device {
 public:
  // `inner` must outlive this object.
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  [[nodiscard]] Backend backend() const override { return inner_.backend(); }
  [[nodiscard]] StreamRef stream() const override { return inner_.stream(); }
  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] std::string libraries() const override { return inner_.libraries(); }
  [[nodiscard]] int64_t memory_bytes() const override { return inner_.memory_bytes(); }
  [[nodiscard]] int64_t alignment() const override { return inner_.alignment(); }
  std::unique_ptr<Allocator> make_allocator() override { return inner_.make_allocator(); }
  void download(const Tensor& source, std::byte* target) override {
    inner_.download(source, target);
  }
  void upload(const std::byte* source, const Tensor& target) override {
    inner_.upload(source, target);
  }
  void synchronize() override { inner_.synchronize(); }
  void send(const PinnedBuffer& buffer) override { inner_.send(buffer); }
  void receive(const PinnedBuffer& buffer) override { inner_.receive(buffer); }
  std::unique_ptr<GraphCapture> make_graph_capture() override {
    return inner_.make_graph_capture();
  }
  void guard_waits(WaitGuard guard) override { inner_.guard_waits(std::move(guard)); }
  std::unique_ptr<CommStream> make_comm_stream() override { return inner_.make_comm_stream(); }
  std::unique_ptr<DeviceReader> make_reader() override { return inner_.make_reader(); }
  void push_scope(const char* name, double flops) override { inner_.push_scope(name, flops); }
  void pop_scope() override { inner_.pop_scope(); }
  Gemm& gemm() override { return inner_.gemm(); }
  Attention& attention() override { return inner_.attention(); }

 protected:
  Device& inner_;
};

// Wraps a device and measures its scopes. Without the wrapper nothing is measured.
//
// Synchronizes at the start and end of each scope, so that work counts for the scope that enqueued
// it. This is slower than overlapping work and cannot be captured as a graph. Results are the same.
class ProfilingDevice final : public ForwardingDevice {
 public:
  // Both must outlive this object.
  ProfilingDevice(Device& inner, Profile& profile) : ForwardingDevice(inner), profile_(profile) {}

  void push_scope(const char* name, double flops) override {
    inner_.synchronize();
    inner_.push_scope(name, flops);
    profile_.begin(name, flops);
  }
  void pop_scope() override {
    inner_.synchronize();
    profile_.end();
    inner_.pop_scope();
  }
  // Runs without recording, because a graph cannot be synchronized within.
  std::unique_ptr<GraphCapture> make_graph_capture() override {
    return Device::make_graph_capture();
  }

 private:
  Profile& profile_;
};

}  // namespace mpt
