// Ranks of a run as threads of one process, for what only exchanges host memory.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "train/rank_group.h"

namespace mpt::test {

class RankThreads {
 public:
  explicit RankThreads(int64_t size) : size_(size) {}

  // Runs `work` for every rank and returns when all have ended; a rank that throws makes the others' calls
  // throw. Rethrows what the lowest rank threw of its own accord.
  void run(const std::function<void(const RankGroup&)>& work) {
    std::vector<std::exception_ptr> thrown(static_cast<size_t>(size_));
    std::vector<std::thread> threads;
    left_ = false;
    arrived_ = 0;
    for (int64_t rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &work, &thrown] {
        try {
          work({.rank = rank, .size = size_, .gather = [this, rank](auto mine, auto all) {
                  gather(rank, mine, all);
                }});
        } catch (const Left&) {
        } catch (...) {
          thrown[static_cast<size_t>(rank)] = std::current_exception();
          leave();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& exception : thrown)
      if (exception) std::rethrow_exception(exception);
  }

 private:
  struct Left : std::runtime_error {
    Left() : std::runtime_error("another rank has left") {}
  };

  void gather(int64_t rank, std::span<const std::byte> mine, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    if (arrived_ == 0) shared_.assign(all.size(), std::byte{});
    std::copy(mine.begin(), mine.end(), shared_.begin() + rank * std::ssize(mine));
    const int64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      gathered_ = shared_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || left_; });
    if (round_ == round) throw Left();
    std::copy(gathered_.begin(), gathered_.end(), all.begin());
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

  int64_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> shared_, gathered_;
  int64_t arrived_ = 0, round_ = 0;
  bool left_ = false;
};

}  // namespace mpt::test
