// Jobs made by one thread, processed by several, and returned in the order in which they were made.
//
//   OrderedPipeline<Job> pipeline({.workers = 4, .depth = 16}, make, work);
//   while (auto job = pipeline.next()) …
//
// At most `depth` jobs exist at a time. next() rethrows an exception of make() or work() at the
// position of its job. The destructor may run at any time; it stops and joins all threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

namespace mpt {

template <class Job>
class OrderedPipeline {
 public:
  struct Options {
    int workers;
    int depth;
  };
  using Make = std::function<std::unique_ptr<Job>()>;  // called by one thread; returns null at the
                                                       // end
  using Work = std::function<void(
      Job&, int worker)>;  // called concurrently by the workers, each with its index

  OrderedPipeline(Options options, Make make, Work work)
      : depth_(static_cast<size_t>(options.depth)), make_(std::move(make)), work_(std::move(work)) {
    const int all = options.workers + 1;
    threads_.reserve(static_cast<size_t>(all));
    try {
      threads_.emplace_back([this] { make_jobs(); });
      for (int i = 0; i < options.workers; ++i)
        threads_.emplace_back([this, i] { work_on_jobs(i); });
    } catch (const std::system_error& failure) {
      const size_t started = threads_.size();
      stop();
      throw error("only {} of {} threads could be started: {}; ask for fewer", started, all,
                  failure.what());
    }
  }
  ~OrderedPipeline() { stop(); }
  OrderedPipeline(const OrderedPipeline&) = delete;
  OrderedPipeline& operator=(const OrderedPipeline&) = delete;

  // Returns the next finished job; null after the last.
  std::unique_ptr<Job> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ordered_.empty() ? made_all_ : ordered_.front()->done; });
    if (ordered_.empty()) return nullptr;
    const std::shared_ptr<Slot> slot = ordered_.front();
    if (slot->failure) std::rethrow_exception(slot->failure);
    ordered_.pop_front();
    changed_.notify_all();
    return std::move(slot->job);
  }

 private:
  struct Slot {
    std::unique_ptr<Job> job;
    std::exception_ptr failure;
    bool done = false;
  };

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void make_jobs() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || ordered_.size() < depth_; });
        if (stop_) return;
      }
      auto slot = std::make_shared<Slot>();
      try {
        slot->job = make_();
      } catch (...) {
        slot->failure = std::current_exception();
        slot->done = true;
      }
      const std::lock_guard lock(mutex_);
      made_all_ = !slot->job;
      if (slot->job) waiting_.push_back(slot);
      if (slot->job || slot->failure) ordered_.push_back(std::move(slot));
      changed_.notify_all();
      if (made_all_) return;
    }
  }

  void work_on_jobs(int worker) {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || made_all_ || !waiting_.empty(); });
      if (stop_ || waiting_.empty()) return;
      const std::shared_ptr<Slot> slot = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        work_(*slot->job, worker);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      slot->failure = failure;
      slot->done = true;
      changed_.notify_all();
    }
  }

  size_t depth_;
  Make make_;
  Work work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Slot>> ordered_;  // made, not yet returned
  std::deque<std::shared_ptr<Slot>> waiting_;  // subset of ordered_ not yet started
  bool made_all_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpt
