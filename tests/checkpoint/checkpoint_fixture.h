// A small train state on a host-memory device, for the tests of checkpoints.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "core/named_tensor.h"
#include "core/tensor.h"
#include "ranks/communicator.h"
#include "support/host_memory_device.h"

namespace mpt::test {

// Owns padded tensors of several types; fill(k) gives all their bytes, including padding, a pattern
// of k.
class SmallTrainState {
 public:
  SmallTrainState() {
    add("model.embed.weight", DType::kF32, 5, 3, 8, 2);
    add("model.norm.weight", DType::kBF16, 1, 7, 7, 1);
    add("m/model.embed.weight", DType::kF32, 5, 3, 3, 2);
    add("counts", DType::kI32, 2, 2, 64, 2);
    add("nothing", DType::kF32, 0, 4, 4, 2);
  }

  void add(const std::string& name, DType type, int64_t rows, int64_t cols, int64_t stride,
           int rank) {
    storage_.emplace_back(static_cast<size_t>(rows * stride * size_of(type)));
    tensors.push_back({name, {storage_.back().data(), type, rows, cols, stride}, rank});
  }
  void fill(int64_t k) {
    int64_t i = k * 1000;
    for (auto& bytes : storage_)
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(++i * 31 >> 2);
  }
  // Returns the logical elements of all tensors, packed.
  std::string content() {
    std::string all;
    for (const NamedTensor& named : tensors) {
      std::vector<std::byte> packed(
          static_cast<size_t>(named.tensor.elements() * size_of(named.tensor.dtype)));
      HostMemoryDevice().download(named.tensor, packed.data());
      all.append(reinterpret_cast<const char*>(packed.data()), packed.size());
    }
    return all;
  }
  static std::string content_of(int64_t k) {
    SmallTrainState other;
    other.fill(k);
    return other.content();
  }

  std::vector<NamedTensor> tensors;

 private:
  std::vector<std::vector<std::byte>> storage_;
};

// The same as held by one of several ranks: the tensors are cut anywhere, "counts" and empty
// tensors are rank 0's. fill() and content() cover all elements: those of others are included, so
// that a test sees them unharmed.
class StateOfRank : public SmallTrainState {
 public:
  explicit StateOfRank(const Communicator& group) : rank_(group.rank()), ranks_(group.size()) {}

  [[nodiscard]] std::vector<TensorPart> resting() const { return parts({0, 1, 2, 4}); }
  [[nodiscard]] std::vector<TensorPart> changing() const { return parts({3}); }
  [[nodiscard]] std::vector<TensorPart> all() const { return parts({0, 1, 2, 3, 4}); }

  // Filled with `others`, then loaded with the data saved after fill(`own`).
  static std::string content_of(const Communicator& group, int64_t own, int64_t others) {
    StateOfRank loaded(group), saved(group);
    loaded.fill(others);
    saved.fill(own);
    const std::string before = loaded.content(), source = saved.content();
    std::string content;
    for (const TensorPart& part : loaded.all()) {
      const int64_t item = size_of(part.whole.tensor.dtype);
      const auto at = [&](int64_t element) { return static_cast<size_t>(element * item); };
      const size_t offset = content.size();
      content += before.substr(offset, at(part.whole.tensor.elements()));
      content.replace(offset + at(part.first), at(part.count),
                      source.substr(offset + at(part.first), at(part.count)));
    }
    return content;
  }

 private:
  [[nodiscard]] std::vector<TensorPart> parts(const std::vector<size_t>& which) const {
    std::vector<TensorPart> list;
    for (const size_t i : which) {
      const int64_t n = tensors[i].tensor.elements();
      const bool whole = n == 0 || tensors[i].name == "counts";
      const int64_t first = whole ? 0 : n * rank_ / ranks_, end = n * (rank_ + 1) / ranks_;
      if (!whole) list.push_back({tensors[i], first, end - first});
      if (whole && rank_ == 0) list.push_back(whole_part(tensors[i]));
      if (whole && rank_ > 0) list.push_back({tensors[i], 0, 0});
    }
    return list;
  }
  int64_t rank_, ranks_;
};

inline TrainState state_at(int64_t step) {
  return {.step = step,
          .cursor = step * 16,
          .seed = 0xFFFFFFFFFFFFFFF0u,
          .config = {{"model", {{"hidden_size", 64}}}},
          .extra = {{"loss", 0.1}},
          .tokens = step * 16 * 128};
}

}  // namespace mpt::test
