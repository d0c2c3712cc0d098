// GEMMs by cuBLASLt on one stream.
//
// A row-major matrix is its transpose in cuBLASLt's column-major order, so D = op(A) op(B) is
// computed as D^T = op(B)^T op(A)^T: the library's first operand is our b. Only algorithms that add
// in a fixed order are used; the same choice of algorithm gives the same bits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/backends.h"
#include "device/cuda/gemm_tuning.h"
#include "device/gemm.h"
#include "device/memory.h"

struct CUstream_st;

namespace mpt {

struct CudaGemmOptions {
  CUstream_st* stream = nullptr;
  std::string gpu{};           // "NVIDIA H200"
  int compute_capability = 0;  // 90 for 9.0
  GemmTuning tuning = GemmTuning::kOn;
};

class CudaGemm final : public Gemm {
 public:
  // Workspace limit: the size NVIDIA recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = (int64_t{32} << 20) + 1024;
  static constexpr int kCandidates = 8;  // number of algorithms timed

  explicit CudaGemm(CudaGemmOptions options);
  ~CudaGemm() override;
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // Needs no GPU if `allocator` only plans; otherwise times algorithms and waits for the stream.
  // Throws Error if the library has no algorithm.
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  // A GEMM that was not reserved uses the library's first algorithm. Throws Error if there is none.
  void run(const GemmCall& call) override;
  [[nodiscard]] Fp8Layout fp8_layout() const override { return Fp8Layout::kRowsOfK; }
  [[nodiscard]] std::vector<GemmChoice> choices() const override;
  void restore(std::span<const GemmChoice> choices) override;

  // Number of GEMM kinds seen so far, each with its algorithm.
  [[nodiscard]] int64_t plans() const;

 private:
  class Library;

  Library& library();  // created on first use: planning needs no GPU

  CudaGemmOptions options_;
  Scratch workspace_;
  std::unique_ptr<Library> library_;
};

std::string cublas_lt_description();  // "cuBLASLt 13.1.0"

}  // namespace mpt
