// What a backend supplies besides iteration (exec.h): memory, copies, matrix products and attention.
//
// Calls are asynchronous with respect to the host where the backend is; synchronize() waits for all of them.
// upload() and download() have completed when they return.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/tensor.h"
#include "device/attention.h"
#include "device/gemm.h"
#include "device/memory_plan.h"

namespace mpt {

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual std::string name() const = 0;       // "CPU: AMD EPYC, 2 threads"
  [[nodiscard]] virtual std::string libraries() const = 0;  // "BLIS 0.9.0 (kernel zen3)"
  [[nodiscard]] virtual int64_t memory_bytes() const = 0;   // what a run may take in all
  virtual std::unique_ptr<Allocator> make_allocator() = 0;

  // Copies the logical elements of a tensor, row after row without padding, to or from host memory.
  virtual void download(const Tensor& source, std::byte* target) = 0;
  virtual void upload(const std::byte* source, const Tensor& target) = 0;
  virtual void synchronize() = 0;

  virtual Gemm& gemm() = 0;
  virtual Attention& attention() = 0;
};

}  // namespace mpt
