#include "ranks/exchange_transport.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/check.h"
#include "ranks/transport_checks.h"

namespace mpt {
namespace {

constexpr auto kEndTime = std::chrono::seconds(2);

std::span<const std::byte> bytes_of(const Tensor& t) { return {t.data, size_t(packed_bytes(t))}; }
std::span<std::byte> writable_bytes_of(const Tensor& t) {
  return {t.data, size_t(packed_bytes(t))};
}

}  // namespace

template <class F>
void ExchangeTransport::for_others(const F& f) const {
  for (int64_t step = 1; step < size(); ++step) f((rank() + step) % size());
}

template <class Incoming, class Outgoing>
void ExchangeTransport::run_with_others(const char* name, const Incoming& incoming,
                                        const Outgoing& outgoing) {
  run(name, [&](Exchange& exchange) {
    for_others([&](int64_t of) { exchange.receive(incoming(of), of); });
    for_others([&](int64_t of) { exchange.send(outgoing(of), of); });
  });
}

void ExchangeTransport::reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) {
  check_reduce_scatter(*this, parts, sum);
  const std::vector<Tensor> given = staged_copies(parts[size_t(rank())]);
  run_with_others(
      "reduce_scatter_sum", [&](int64_t of) { return writable_bytes_of(given[size_t(of)]); },
      [&](int64_t of) { return bytes_of(parts[size_t(of)]); });
  sum_in_rank_order(given, sum);
  sent_ += sent_by_reduce_scatter(*this, parts);
}

void ExchangeTransport::all_gather(std::span<const Tensor> parts) {
  check_all_gather(*this, parts);
  run_with_others(
      "all_gather", [&](int64_t of) { return writable_bytes_of(parts[size_t(of)]); },
      [&](int64_t) { return bytes_of(parts[size_t(rank())]); });
  sent_ += sent_by_all_gather(*this, parts);
}

void ExchangeTransport::all_reduce_max(const Tensor& values) {
  check_all_reduce_max(values);
  const std::vector<Tensor> given = staged_copies(values);
  run_with_others(
      "all_reduce_max", [&](int64_t of) { return writable_bytes_of(given[size_t(of)]); },
      [&](int64_t) { return bytes_of(values); });
  std::vector<const float*> of_ranks;
  for (const Tensor& of_rank : given) of_ranks.push_back(of_rank.as<float>());
  max_over_ranks(of_ranks, {values.as<float>(), size_t(values.elements())});
  sent_ += sent_by_all_reduce_max(*this, values);
}

void ExchangeTransport::gather_host(std::span<const std::byte> mine, std::span<std::byte> all) {
  check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
  const auto of_rank = [&](int64_t of) {
    return all.subspan(size_t(of) * mine.size(), mine.size());
  };
  run_with_others("gather_host", of_rank, [&](int64_t) { return mine; });
  if (!mine.empty()) std::memmove(of_rank(rank()).data(), mine.data(), mine.size());
}

void ExchangeTransport::broadcast_host(std::span<std::byte> bytes, int64_t root) {
  check_root(*this, root);
  run("broadcast_host", [&](Exchange& exchange) {
    if (rank() != root) return exchange.receive(bytes, root);
    for_others([&](int64_t of) { exchange.send(bytes, of); });
  });
}

void ExchangeTransport::barrier() { meet(Meeting::kBarrier); }

bool ExchangeTransport::meet_at_end() {
  if (failure_ || std::uncaught_exceptions() > exceptions_) return false;
  meet(Meeting::kEnd);
  return true;
}

std::unique_lock<std::timed_mutex> ExchangeTransport::cancel() {
  cancelled_ = true;
  wake();
  return {in_call_, kEndTime};
}

const char* ExchangeTransport::name_of(Meeting meeting) {
  return meeting == Meeting::kBarrier ? "barrier" : "the end of the run";
}

void ExchangeTransport::meet(Meeting meeting) {
  const auto mine = std::byte(meeting);
  std::vector<std::byte> others(static_cast<size_t>(size()), mine);
  run(name_of(meeting), [&](Exchange& exchange) {
    for_others([&](int64_t of) { exchange.receive({&others[size_t(of)], 1}, of); });
    for_others([&](int64_t of) { exchange.send({&mine, 1}, of); });
    exchange.wait();
    for_others([&](int64_t of) {
      const auto theirs = Meeting(others[size_t(of)]);
      if (theirs != meeting)
        throw error("{}: rank {} is at {}", name_of(meeting), of, name_of(theirs));
    });
  });
}

// After a failure the ranks are out of step, so every later call fails with the same error.
void ExchangeTransport::run(const char* name, const std::function<void(Exchange&)>& post) {
  const std::lock_guard lock(in_call_);
  if (failure_) std::rethrow_exception(failure_);
  try {
    const auto exchange = begin(exchanges_++, name);
    post(*exchange);
    exchange->wait();
  } catch (const std::exception&) {
    failure_ = std::current_exception();
    throw;
  }
}

// One tensor per rank: `own` itself, and staging memory of the same shape for the others.
std::vector<Tensor> ExchangeTransport::staged_copies(const Tensor& own) {
  const auto bytes = size_t(packed_bytes(own));
  if (staging_bytes_ < bytes * size_t(size() - 1)) {
    staging_bytes_ = bytes * size_t(size() - 1);
    staging_.reset(new std::byte[staging_bytes_]);
  }
  std::vector<Tensor> copies;
  std::byte* next = staging_.get();
  for (int64_t of = 0; of < size(); ++of) {
    copies.push_back(own);
    if (of == rank()) continue;
    copies.back().data = next;
    next += bytes;
  }
  return copies;
}

}  // namespace mpt
