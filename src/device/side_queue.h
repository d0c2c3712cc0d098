// Work beside the device's own: collectives that overlap with computing.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

struct CUstream_st;

namespace mpt {

class SideQueue {
 public:
  using Ticket = int64_t;  // of run() calls, from 1

  virtual ~SideQueue() = default;
  // Enqueues work that begins when all that the device was given so far and all earlier work of this queue is
  // done, beside what the device is given next. It may be called on another thread, once and in order: what
  // it uses must live until then, and it gives the device's own queue nothing. On a CUDA backend it is called
  // at once and enqueues on cuda_stream().
  virtual Ticket run(std::function<void()> work) = 0;
  // What the device is given from now on begins when that work is done. Throws what the work threw, and again
  // at every later call: a queue whose work failed runs no more.
  virtual void wait(Ticket ticket) = 0;
  // Drops what has not begun and waits for what has: for an end with an error. Nothing may be run afterwards.
  virtual void stop() = 0;

  // Within its work: copies as many bytes as `from` has; both are contiguous.
  virtual void copy(const Tensor& from, const Tensor& to);
  // The stream of a CUDA backend's side work; null elsewhere.
  [[nodiscard]] virtual CUstream_st* cuda_stream() const { return nullptr; }
};

}  // namespace mpt
