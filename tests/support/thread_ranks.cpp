#include "support/thread_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "ranks/relayed_error.h"
#include "ranks/transport.h"
#include "ranks/transport_checks.h"

namespace mpt {
namespace {

// A call as seen by other ranks: its signature and its data.
struct Call {
  std::string name;  // includes sizes
  std::span<const Tensor> parts{};
  const std::byte* bytes = nullptr;
};

std::string call_name(std::string_view operation, std::span<const Tensor> parts) {
  std::string name(operation);
  for (const Tensor& part : parts)
    name += fmt::format(" {}[{}]", name_of(part.dtype), part.elements());
  return name;
}

void copy_bytes(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, size_t(bytes));
}

}  // namespace

// A barrier that all ranks pass twice per call: before reading the others' data, and afterwards.
class ThreadRanks::Meeting {
 public:
  Meeting(int64_t ranks, ThreadRanksOptions options)
      : options_(options),
        calls_(size_t(ranks)),
        here_(size_t(ranks)),
        left_(size_t(ranks)),
        made_(size_t(ranks)) {
    check(ranks > 0, "{} ranks", ranks);
  }

  [[nodiscard]] int64_t size() const { return int64_t(calls_.size()); }
  void make(int64_t rank) {
    const std::lock_guard lock(mutex_);
    check(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
    check(!made_[size_t(rank)], "the transport of rank {} was made before", rank);
    made_[size_t(rank)] = true;
  }

  // Returns the call of each rank. They remain valid until this rank calls done(), which it must.
  std::span<const Call> come(int64_t rank, Call call) {
    std::unique_lock lock(mutex_);
    throw_failure();
    calls_[size_t(rank)] = std::move(call);
    here_[size_t(rank)] = true;
    const int64_t meeting = meetings_;
    if (missing().empty())
      begin();
    else
      wait_for_others(lock, rank, meeting);
    throw_failure();
    return calls_;
  }
  // Call whatever else fails: no rank's data may be freed while another reads it.
  void done() {
    std::unique_lock lock(mutex_);
    const int64_t meeting = meetings_;
    if (++done_ == size()) {
      done_ = 0;
      ++meetings_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meetings_ != meeting; });
  }

  void leave(int64_t rank) {
    const std::lock_guard lock(mutex_);
    left_[size_t(rank)] = true;
    changed_.notify_all();
  }
  void abort(int64_t rank, const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (!failure_)
      failure_ =
          std::make_exception_ptr(RelayedError(fmt::format("rank {} failed: {}", rank, cause)));
    changed_.notify_all();
  }

 private:
  void begin() {
    compare_calls();
    here_.assign(here_.size(), false);
    if (!failure_) ++meetings_;
    changed_.notify_all();
  }
  void wait_for_others(std::unique_lock<std::mutex>& lock, int64_t rank, int64_t meeting) {
    const auto over = [&] {
      return meetings_ != meeting || failure_ || !missing_that_left().empty();
    };
    changed_.wait_for(lock, options_.timeout, over);
    if (meetings_ != meeting || failure_) return;
    const auto left = missing_that_left();
    const double seconds = std::chrono::duration<double>(options_.timeout).count();
    const std::string what = left.empty() ? fmt::format("rank {} did not arrive within {} s",
                                                        fmt::join(missing(), ", "), seconds)
                                          : fmt::format("rank {} has left", fmt::join(left, ", "));
    failure_ = std::make_exception_ptr(error("{}: {}", calls_[size_t(rank)].name, what));
    changed_.notify_all();
  }

  [[nodiscard]] std::vector<size_t> missing() const {
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < here_.size(); ++rank)
      if (!here_[rank]) ranks.push_back(rank);
    return ranks;
  }
  [[nodiscard]] std::vector<size_t> missing_that_left() const {
    std::vector<size_t> ranks = missing();
    std::erase_if(ranks, [this](size_t rank) { return !left_[rank]; });
    return ranks;
  }
  void compare_calls() {
    for (size_t rank = 1; rank < calls_.size(); ++rank)
      if (calls_[rank].name != calls_[0].name && !failure_)
        failure_ = std::make_exception_ptr(LogicError(fmt::format(
            "rank {} calls {} where rank 0 calls {}", rank, calls_[rank].name, calls_[0].name)));
  }
  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  const ThreadRanksOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<bool> here_, left_, made_;
  int64_t meetings_ = 0;  // two per call: when all have arrived, when all are done
  int64_t done_ = 0;
  std::exception_ptr failure_;
};

class ThreadRanks::Rank final : public Transport {
 public:
  Rank(std::shared_ptr<Meeting> meeting, int64_t rank)
      : Transport(rank, meeting->size()), meeting_(std::move(meeting)) {
    meeting_->make(rank);
  }
  ~Rank() override { meeting_->leave(rank()); }

  [[nodiscard]] std::string name() const override {
    return fmt::format("threads, {} ranks", size());
  }

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(*this, parts, sum);
    std::vector<Tensor> given(static_cast<size_t>(size()));
    const auto calls = come("reduce_scatter_sum", parts);
    for (size_t r = 0; r < given.size(); ++r) given[r] = calls[r].parts[size_t(rank())];
    sum_in_rank_order(given, sum);
    meeting_->done();
    sent_ += sent_by_reduce_scatter(*this, parts);
  }

  void all_gather(std::span<const Tensor> parts) override {
    check_all_gather(*this, parts);
    const auto calls = come("all_gather", parts);
    for (size_t r = 0; r < parts.size(); ++r)
      if (int64_t(r) != rank())
        copy_bytes(calls[r].parts[r].data, packed_bytes(parts[r]), parts[r].data);
    meeting_->done();
    sent_ += sent_by_all_gather(*this, parts);
  }

  // Reduces into a separate buffer first, because other ranks read `values`.
  void all_reduce_max(const Tensor& values) override {
    check_all_reduce_max(values);
    std::vector<const float*> given(static_cast<size_t>(size()));
    std::vector<float> largest(size_t(values.elements()));
    const auto calls = come("all_reduce_max", {&values, 1});
    for (size_t rank = 0; rank < given.size(); ++rank)
      given[rank] = calls[rank].parts[0].as<float>();
    max_over_ranks(given, largest);
    meeting_->done();
    copy_bytes(reinterpret_cast<const std::byte*>(largest.data()), packed_bytes(values),
               values.data);
    sent_ += sent_by_all_reduce_max(*this, values);
  }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
    const auto calls =
        come_with_bytes(fmt::format("gather_host of {} bytes", mine.size()), mine.data());
    for (size_t rank = 0; rank < calls.size(); ++rank)
      copy_bytes(calls[rank].bytes, int64_t(mine.size()), all.data() + rank * mine.size());
    meeting_->done();
  }
  void broadcast_host(std::span<std::byte> bytes, int64_t root) override {
    check_root(*this, root);
    const auto calls = come_with_bytes(
        fmt::format("broadcast_host of {} bytes from rank {}", bytes.size(), root), bytes.data());
    if (root != rank()) copy_bytes(calls[size_t(root)].bytes, int64_t(bytes.size()), bytes.data());
    meeting_->done();
  }
  void barrier() override {
    come_with_bytes("barrier", nullptr);
    meeting_->done();
  }

  [[nodiscard]] int64_t bytes_sent() const override { return sent_; }
  void abort(const std::string& cause) noexcept override { meeting_->abort(rank(), cause); }

 private:
  std::span<const Call> come(std::string_view operation, std::span<const Tensor> parts) {
    return meeting_->come(rank(), {.name = call_name(operation, parts), .parts = parts});
  }
  std::span<const Call> come_with_bytes(std::string name, const std::byte* bytes) {
    return meeting_->come(rank(), {.name = std::move(name), .bytes = bytes});
  }

  std::shared_ptr<Meeting> meeting_;
  int64_t sent_ = 0;
};

ThreadRanks::ThreadRanks(int64_t ranks, ThreadRanksOptions options)
    : meeting_(std::make_shared<Meeting>(ranks, options)) {}
ThreadRanks::~ThreadRanks() = default;

std::unique_ptr<Transport> ThreadRanks::transport(int64_t rank) {
  return std::make_unique<Rank>(meeting_, rank);
}

void run_ranks(int64_t ranks, const std::function<void(Transport&)>& rank_main,
               ThreadRanksOptions options) {
  ThreadRanks all(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  // Recorded before the others are notified, so the errors they then throw come later.
  const auto failed = [&](Transport& transport, const std::string& cause) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    transport.abort(cause);
  };
  const auto run = [&](int64_t rank) {
    const auto transport = all.transport(rank);
    try {
      rank_main(*transport);
    } catch (const std::exception& caught) {
      failed(*transport, caught.what());
    } catch (...) {
      failed(*transport, "an exception of unknown type");
    }
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace mpt
