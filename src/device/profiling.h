// Time by named scope of work (ProfileScope), and the device that takes it.
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

// Time by name, as a tree: the same name within the same scope is one node.
//
// The time of a node is that of all its scopes, from beginning to end; its self time is what of that lies
// in none of its children, so self times add up to the whole.
class Profile {
 public:
  using Clock = std::function<double()>;  // seconds since whenever

  struct Node {
    std::string_view name;
    size_t depth = 0;  // 0: within nothing
    int64_t calls = 0;
    double seconds = 0;
    double self_seconds = 0;
    double flops = 0;
  };

  explicit Profile(Clock clock = steady_seconds) : clock_(std::move(clock)) {}

  // Scopes end in the reverse order of their beginning. `name` is kept: a literal.
  void begin(const char* name, double flops = 0);
  void end();

  // Forgets what was measured and keeps the order of the nodes. Not within a scope.
  void clear();

  // Parents before their children, children as they were first seen; those without a call are left out.
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
  std::vector<Inner> tree_{1};     // its root stands for everything and is no scope
  std::vector<OpenScope> open_{};  // innermost last
};

// A device that does what another one does, for decorators to override single calls of.
class ForwardingDevice : public Device {
 public:
  // `inner` outlives this.
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  [[nodiscard]] Backend backend() const override { return inner_.backend(); }
  [[nodiscard]] StreamRef stream() const override { return inner_.stream(); }
  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] std::string libraries() const override { return inner_.libraries(); }
  [[nodiscard]] int64_t memory_bytes() const override { return inner_.memory_bytes(); }
  [[nodiscard]] int64_t alignment() const override { return inner_.alignment(); }
  std::unique_ptr<Allocator> make_allocator() override { return inner_.make_allocator(); }
  void download(const Tensor& source, std::byte* target) override { inner_.download(source, target); }
  void upload(const std::byte* source, const Tensor& target) override { inner_.upload(source, target); }
  void synchronize() override { inner_.synchronize(); }
  void send(const PinnedBuffer& buffer) override { inner_.send(buffer); }
  void receive(const PinnedBuffer& buffer) override { inner_.receive(buffer); }
  std::unique_ptr<GraphCapture> make_graph_capture() override { return inner_.make_graph_capture(); }
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

// Another device, of whose scopes the time is taken. A device that is not wrapped in one measures nothing.
//
// Work is waited for where a scope begins and where it ends, so that it counts for the scope that asked for
// it. That is slower than work that overlaps, and cannot be recorded as a graph. The results are the same.
class ProfilingDevice final : public ForwardingDevice {
 public:
  // Both outlive this.
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
  // Nothing is recorded: it could not be waited for.
  std::unique_ptr<GraphCapture> make_graph_capture() override { return Device::make_graph_capture(); }

 private:
  Profile& profile_;
};

}  // namespace mpt
