// Causal attention on the CPU: one (sequence, head) at a time per thread, in 64 x 64 tiles with an online
// softmax (FlashAttention's recurrence). Memory per thread grows linearly with the sequence length.
#pragma once

#include "device/attention.h"
#include "device/scratch.h"

namespace mpt {

class CpuAttention final : public Attention {
 public:
  explicit CpuAttention(int threads) : threads_(threads) {}
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;

 private:
  void check_reserved(const AttentionShape& shape) const;
  [[nodiscard]] float* scratch_of_thread(const AttentionShape& shape) const;

  int threads_;
  Scratch scratch_;  // of all threads
};

}  // namespace mpt
