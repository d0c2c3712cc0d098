#include "comm/transport.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/mpi/mpi_transport.h"
#include "core/bf16.h"
#include "core/check.h"

namespace mpt {

NcclMaker& nccl_maker() {
  static NcclMaker maker = nullptr;
  return maker;
}

namespace {

#ifdef MPT_WITH_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
#endif

TransportKind chosen(const TransportOptions& options) {
  const bool cuda = options.stream.backend == Backend::kCuda;
  const TransportKind kind = options.kind != TransportKind::kAuto ? options.kind
                             : cuda                               ? TransportKind::kNccl
                                                                  : TransportKind::kMpi;
  if (kind == TransportKind::kNccl && !cuda)
    throw error(
        "NCCL transfers tensors on GPUs only; ranks on the CPU need MPI: start them with mpirun");
  if (kind == TransportKind::kMpi && cuda)
    throw error("MPI transfers tensors in host memory only; ranks on GPUs need NCCL");
  return kind;
}

std::unique_ptr<Transport> over_mpi(const LaunchEnvironment& environment,
                                    const TransportOptions& options) {
  if (environment.launcher != Launcher::kMpi)
    throw error("{} on the CPU: ranks on the CPU need MPI: start them with mpirun",
                description(environment));
#ifdef MPT_WITH_MPI
  return make_mpi_transport(
      {.rank = environment.rank, .size = environment.size, .timeout = options.timeout});
#else
  static_cast<void>(options);
  throw error(
      "{}: this program was built without MPI: install libopenmpi-dev and openmpi-bin, and build "
      "it again",
      description(environment));
#endif
}

std::unique_ptr<Transport> over_nccl(const LaunchEnvironment& environment,
                                     const TransportOptions& options) {
  const NcclMaker make_nccl_transport = nccl_maker();
  if (make_nccl_transport == nullptr)
    throw error(
        "{} on GPUs: this program was built without NCCL: install libnccl-dev, and build it again",
        description(environment));
  const bool through_mpi =
      environment.launcher == Launcher::kMpi && (kHasMpi || environment.master_address.empty());
  return make_nccl_transport(environment, options,
                             through_mpi ? over_mpi(environment, options) : nullptr);
}

}  // namespace

std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options) {
  if (environment.size == 1) return make_single_transport();
  return chosen(options) == TransportKind::kMpi ? over_mpi(environment, options)
                                                : over_nccl(environment, options);
}

std::string transports_built() {
  return fmt::format("{}MPI, {}NCCL", kHasMpi ? "" : "no ", nccl_maker() != nullptr ? "" : "no ");
}

namespace {

constexpr int64_t kBlock = 2048;  // elements; their sums stay in L1

void check_count(const Transport& of, std::span<const Tensor> parts) {
  check(int64_t(parts.size()) == of.size(), "{} parts for {} ranks", parts.size(), of.size());
}

template <class T>
void set_block(const T* from, int64_t n, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = to_float(from[i]);
}
template <class T>
void add_block(const T* from, int64_t n, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += to_float(from[i]);
}

// Block by block; a block of `sum` is written after it has been read from all parts, so `sum` may
// alias a part.
template <class T>
void sum_parts(std::span<const Tensor> parts, const Tensor& sum) {
  std::array<float, kBlock> block;
  for (int64_t first = 0; first < sum.elements(); first += kBlock) {
    const int64_t n = std::min(kBlock, sum.elements() - first);
    set_block(parts[0].as<T>() + first, n, block.data());
    for (const Tensor& part : parts.subspan(1)) add_block(part.as<T>() + first, n, block.data());
    std::memcpy(sum.as<float>() + first, block.data(), size_t(n) * sizeof(float));
  }
}

}  // namespace

void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum) {
  check_count(of, parts);
  for (const Tensor& part : parts) {
    check(part.contiguous() || part.elements() == 0,
          "part [{},{}] with row stride {} is not contiguous", part.rows, part.cols, part.stride);
    check(part.dtype == parts[0].dtype && (part.dtype == DType::kF32 || part.dtype == DType::kBF16),
          "parts of types {} and {}; all must be fp32 or all bf16", name_of(parts[0].dtype),
          name_of(part.dtype));
  }
  const Tensor& own = parts[size_t(of.rank())];
  check(sum.dtype == DType::kF32 && sum.elements() == own.elements() &&
            (sum.contiguous() || sum.elements() == 0),
        "the sum has {} elements of type {}; expected {} contiguous elements of fp32",
        sum.elements(), name_of(sum.dtype), own.elements());
}

void check_all_gather(const Transport& of, std::span<const Tensor> parts) {
  check_count(of, parts);
  for (const Tensor& part : parts)
    check(part.contiguous() || part.elements() == 0,
          "part [{},{}] with row stride {} is not contiguous", part.rows, part.cols, part.stride);
}

void check_all_reduce_max(const Tensor& values) {
  check(values.dtype == DType::kF32 && (values.contiguous() || values.elements() == 0),
        "all_reduce_max of {} [{},{}] with row stride {}; expected contiguous fp32",
        name_of(values.dtype), values.rows, values.cols, values.stride);
}

void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes) {
  check(all_bytes == of.size() * mine_bytes, "cannot gather {} bytes from each of {} ranks into {}",
        mine_bytes, of.size(), all_bytes);
}

void check_root(const Transport& of, int64_t root) {
  check(root >= 0 && root < of.size(), "root rank {} of {} is out of range", root, of.size());
}

int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts) {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += packed_bytes(part);
  return bytes - packed_bytes(parts[size_t(of.rank())]);
}
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts) {
  return (of.size() - 1) * packed_bytes(parts[size_t(of.rank())]);
}
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values) {
  return (of.size() - 1) * packed_bytes(values);
}

void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum) {
  if (parts[0].dtype == DType::kF32)
    sum_parts<float>(parts, sum);
  else
    sum_parts<bf16>(parts, sum);
}

// Uses comparisons, because std::fmax is a call per element. Block by block, as above.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest) {
  std::array<float, kBlock> block;
  for (int64_t first = 0; first < int64_t(largest.size()); first += kBlock) {
    const int64_t n = std::min(kBlock, int64_t(largest.size()) - first);
    set_block(values[0] + first, n, block.data());
    for (const float* const of_rank : values.subspan(1)) {
      const float* const from = of_rank + first;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float x = from[i], most = block[size_t(i)];
        block[size_t(i)] = x > most || most != most ? x : most;
      }
    }
    std::memcpy(largest.data() + first, block.data(), size_t(n) * sizeof(float));
  }
}

// Transports without communication: for the only rank of a run, and for a plan.

namespace {

class SingleTransport final : public Transport {
 public:
  SingleTransport() : Transport(0, 1) {}
  [[nodiscard]] std::string name() const override { return "one rank"; }

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(*this, parts, sum);
    sum_in_rank_order(parts, sum);
  }
  void all_gather(std::span<const Tensor> parts) override { check_all_gather(*this, parts); }
  void all_reduce_max(const Tensor& values) override { check_all_reduce_max(values); }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  void broadcast_host(std::span<std::byte> /*bytes*/, int64_t root) override {
    check_root(*this, root);
  }
  void barrier() override {}

  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string& /*cause*/) noexcept override {}
};

class PlannedTransport final : public Transport {
 public:
  using Transport::Transport;
  [[nodiscard]] std::string name() const override {
    return fmt::format("a plan of {} ranks", size());
  }

  void reduce_scatter_sum(std::span<const Tensor>, const Tensor&) override {
    refuse("reduce_scatter_sum");
  }
  void all_gather(std::span<const Tensor>) override { refuse("all_gather"); }
  void all_reduce_max(const Tensor&) override { refuse("all_reduce_max"); }
  void gather_host(std::span<const std::byte>, std::span<std::byte>) override {
    refuse("gather_host");
  }
  void broadcast_host(std::span<std::byte>, int64_t) override { refuse("broadcast_host"); }
  void barrier() override { refuse("barrier"); }

  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string& /*cause*/) noexcept override {}

 private:
  [[noreturn]] void refuse(std::string_view call) const {
    throw LogicError(
        fmt::format("{} called on rank {} of {}, which is only planned", call, rank(), size()));
  }
};

}  // namespace

std::unique_ptr<Transport> make_single_transport() { return std::make_unique<SingleTransport>(); }
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size) {
  check(rank >= 0 && rank < size, "planned rank {} of {} is out of range", rank, size);
  return std::make_unique<PlannedTransport>(rank, size);
}

}  // namespace mpt
