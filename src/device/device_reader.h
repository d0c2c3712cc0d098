// Reads a device's memory to the host beside the device's own work, on another thread.
//
//   reader.begin();                                       on the thread that gives the device its work
//   std::thread([&] { reader.read(blocks, write); });     while the device is given work that reads them too
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/tensor.h"

namespace mpt {

class DeviceReader {
 public:
  static constexpr int64_t kMostBytes = int64_t{16} << 20;  // of a block, packed
  using Take = std::function<void(std::span<const std::byte>)>;

  virtual ~DeviceReader() = default;
  // What is read from now on is what the work that the device was given so far leaves.
  virtual void begin() = 0;
  // Copies the logical elements of each block, row after row without padding, and hands them to `take`, in
  // order and on this thread. What a block views must not change until its take() has begun; a backend may
  // read ahead by one.
  virtual void read(std::span<const Tensor> blocks, const Take& take) = 0;
  // Whether read() may be called on another thread than begin().
  [[nodiscard]] virtual bool beside() const { return true; }
};

}  // namespace mpt
