#include "comm/cuda/nccl_transport.h"

#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "comm/cuda/nccl_handle.h"
#include "comm/cuda/widen_sums.h"
#include "comm/rendezvous.h"
#include "comm/transport.h"
#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/owned.h"

namespace mpt {
namespace {

ncclDataType_t nccl_type(DType type) { return type == DType::kBF16 ? ncclBfloat16 : ncclFloat32; }

// Whether NCCL's own collectives fit: all parts of one length, one behind the other in the order of ranks.
bool side_by_side(std::span<const Tensor> parts) {
  const int64_t bytes = packed_bytes(parts[0]);
  for (size_t rank = 1; rank < parts.size(); ++rank)
    if (packed_bytes(parts[rank]) != bytes || parts[rank].data != parts[rank - 1].data + bytes) return false;
  return true;
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const LaunchEnvironment& environment, const ncclUniqueId& id, const NcclOptions& options,
                std::unique_ptr<Transport> launched)
      : Transport(environment.rank, environment.size),
        stream_(options.stream),
        launched_(std::move(launched)),
        nccl_(rank(), size(), id, options.timeout) {}

  [[nodiscard]] std::string name() const override {
    return fmt::format("NCCL {}, {} ranks", nccl_version(), size());
  }

  // Sums of bf16 parts are made in the own part and widened from there.
  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(*this, parts, sum);
    const Tensor& own = parts[size_t(rank())];
    const bool widened = own.dtype == DType::kBF16;
    void* const target = widened ? own.data : sum.data;
    if (side_by_side(parts))
      reduce_scatter(parts, target);
    else
      reduce_each(parts, target);
    if (widened) widen_sums(own, sum, stream_);
    sent_ += sent_by_reduce_scatter(*this, parts);
  }

  void all_gather(std::span<const Tensor> parts) override {
    check_all_gather(*this, parts);
    const auto own_bytes = size_t(packed_bytes(parts[size_t(rank())]));
    if (side_by_side(parts)) {
      if (own_bytes > 0)
        nccl_.run("ncclAllGather", [&](ncclComm_t comm) {
          return ncclAllGather(parts[size_t(rank())].data, parts[0].data, own_bytes, ncclUint8, comm,
                               stream_);
        });
    } else {
      broadcast_each(parts);
    }
    sent_ += sent_by_all_gather(*this, parts);
  }

  void all_reduce_max(const Tensor& values) override {
    check_all_reduce_max(values);
    if (values.elements() > 0)
      nccl_.run("ncclAllReduce", [&](ncclComm_t comm) {
        return ncclAllReduce(values.data, values.data, size_t(values.elements()), ncclFloat32, ncclMax, comm,
                             stream_);
      });
    sent_ += sent_by_all_reduce_max(*this, values);
  }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
    if (mine.empty()) return;
    std::byte* const memory = staging(all.size());
    std::byte* const own = memory + size_t(rank()) * mine.size();
    copy(own, mine.data(), mine.size(), cudaMemcpyHostToDevice);
    nccl_.run("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(own, memory, mine.size(), ncclUint8, comm, stream_);
    });
    copy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost);
  }
  void broadcast_host(std::span<std::byte> bytes, int64_t root) override {
    check_root(*this, root);
    if (bytes.empty()) return;
    std::byte* const memory = staging(bytes.size());
    if (rank() == root) copy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    nccl_.run("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(memory, memory, bytes.size(), ncclUint8, int(root), comm, stream_);
    });
    copy(bytes.data(), memory, bytes.size(), cudaMemcpyDeviceToHost);
  }
  void barrier() override {
    const auto mine = std::byte(1);
    std::vector<std::byte> all(static_cast<size_t>(size()));
    gather_host({&mine, 1}, all);
  }
  void wait_for_device(const std::function<void()>& wait) override { nccl_.watch(wait); }

  [[nodiscard]] int64_t bytes_sent() const override { return sent_; }

  // Of the launchers, MPI's ends the other processes here, the others when this one exits with an error.
  void abort(const std::string& cause) noexcept override {
    nccl_.abort(cause);
    if (launched_) launched_->abort(cause);
  }

 private:
  using Memory = Owned<void*, cudaFree>;

  void reduce_scatter(std::span<const Tensor> parts, void* target) {
    const auto count = size_t(parts[0].elements());
    if (count == 0) return;
    nccl_.run("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(parts[0].data, target, count, nccl_type(parts[0].dtype), ncclSum, comm,
                               stream_);
    });
  }
  void reduce_each(std::span<const Tensor> parts, void* target) {
    for_each_in_group("ncclReduce", parts, [&](const Tensor& part, int root, ncclComm_t comm) {
      return ncclReduce(part.data, root == int(rank()) ? target : nullptr, size_t(part.elements()),
                        nccl_type(part.dtype), ncclSum, root, comm, stream_);
    });
  }
  void broadcast_each(std::span<const Tensor> parts) {
    for_each_in_group("ncclBroadcast", parts, [&](const Tensor& part, int root, ncclComm_t comm) {
      return ncclBroadcast(part.data, part.data, size_t(packed_bytes(part)), ncclUint8, root, comm, stream_);
    });
  }
  // call(part, its rank, comm) for every part that is not empty, as one call of NCCL.
  template <class F>
  void for_each_in_group(std::string_view name, std::span<const Tensor> parts, const F& call) {
    nccl_.run(name, [&](ncclComm_t comm) {
      ncclResult_t status = ncclGroupStart();
      for (size_t rank = 0; rank < parts.size() && started(status); ++rank)
        if (parts[rank].elements() > 0) status = call(parts[rank], int(rank), comm);
      const ncclResult_t ended = ncclGroupEnd();
      return started(status) ? ended : status;
    });
  }
  static bool started(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }

  // GPU memory of this object's own, kept until more is needed.
  std::byte* staging(size_t bytes) {
    if (staging_bytes_ < bytes) {
      synchronize();
      staging_.reset();
      void* memory = nullptr;
      check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
      staging_.reset(memory);
      staging_bytes_ = bytes;
    }
    return static_cast<std::byte*>(staging_.get());
  }
  // Done when it returns.
  void copy(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind) {
    nccl_.watch([&] { check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync"); });
    synchronize();
  }
  void synchronize() {
    nccl_.watch([&] { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); });
  }

  cudaStream_t stream_;
  std::unique_ptr<Transport> launched_;  // MPI, where that launched the ranks
  NcclHandle nccl_;
  int64_t sent_ = 0;
  Memory staging_;
  size_t staging_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const LaunchEnvironment& environment,
                                               const NcclOptions& options,
                                               std::unique_ptr<Transport> launched) {
  check(options.stream != nullptr, "NCCL without a stream");
  ncclUniqueId id{};
  if (environment.rank == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&id, 1));
  if (launched) {
    launched->broadcast_host(bytes, 0);
  } else {
    share_bytes_of_rank_0(bytes, {.rank = environment.rank,
                                  .size = environment.size,
                                  .address = environment.master_address,
                                  .port = environment.master_port,
                                  .run_id = environment.run_id,
                                  .timeout = options.timeout});
  }
  return std::make_unique<NcclTransport>(environment, id, options, std::move(launched));
}

}  // namespace mpt
