// Requirements on every transport, as programs that each rank runs: they check their results, and
// return them so that transports can be compared bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/check.h"
#include "ranks/transport.h"

namespace mpt::test {

using Bytes = std::vector<std::byte>;

// Elements of the part for a rank: unequal, some empty, some longer than the amount added at once.
inline int64_t uneven_length(int64_t rank) {
  return std::vector<int64_t>{5000, 0, 1, 2049, 17}[size_t(rank % 5)];
}
inline int64_t even_length(int64_t /*rank*/) { return 300; }

// Magnitudes so different that the order of additions shows in the sum.
inline float given_value(int64_t rank, int64_t owner, int64_t i) {
  const auto mixed = uint32_t((rank * 7919 + owner * 104729 + i * 31 + 1) * 2654435761u);
  const float sign = (mixed & 1u) != 0 ? 1.0f : -1.0f;
  return sign * std::ldexp(1.0f + float(mixed >> 9) * 0x1p-23f, int(mixed % 7) - 3);
}

// Contiguous views [1, n_r] in one buffer, with guards around each.
class Parts {
 public:
  Parts(DType type, int64_t ranks, int64_t (*length)(int64_t)) {
    int64_t bytes = kGuard;
    std::vector<int64_t> starts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      starts.push_back(bytes);
      bytes += (length(rank) * size_of(type) + kGuard + 15) / 16 * 16;
    }
    memory_.assign(size_t(bytes), std::byte{0xA5});
    for (int64_t rank = 0; rank < ranks; ++rank)
      views_.push_back(
          {memory_.data() + starts[size_t(rank)], type, 1, length(rank), length(rank)});
  }
  [[nodiscard]] const std::vector<Tensor>& views() const { return views_; }
  [[nodiscard]] const Tensor& view(int64_t rank) const { return views_[size_t(rank)]; }

  void set(int64_t part, int64_t i, float x) {
    const Tensor& t = view(part);
    if (t.dtype == DType::kBF16)
      t.as<bf16>()[i] = bf16_nearest(x);
    else
      t.as<float>()[i] = x;
  }
  void check_guards() const {
    std::vector<bool> inside(memory_.size());
    for (const Tensor& t : views_)
      for (int64_t b = 0; b < t.elements() * size_of(t.dtype); ++b)
        inside[size_t(t.data - memory_.data() + b)] = true;
    for (size_t b = 0; b < memory_.size(); ++b)
      check(inside[b] || memory_[b] == std::byte{0xA5},
            "byte {} of {} beside the parts was written", b, memory_.size());
  }

 private:
  static constexpr int64_t kGuard = 64;
  Bytes memory_;
  std::vector<Tensor> views_;
};

inline Bytes bytes_of_floats(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline bool same_bits(float a, float b) { return bits_of(a) == bits_of(b); }

// Returns the sum that rank `owner` receives, added one by one from rank 0 on.
inline float sum_in_order(DType type, int64_t ranks, int64_t owner, int64_t i) {
  float sum = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const float given = given_value(rank, owner, i);
    const float x = type == DType::kBF16 ? rounded_to<bf16>(given) : given;
    sum = rank == 0 ? x : sum + x;
  }
  return sum;
}

inline Bytes reduce_scatter_case(Transport& ranks, DType type, int64_t (*length)(int64_t)) {
  const int64_t rank = ranks.rank(), size = ranks.size(), own = length(rank);
  Parts parts(type, size, length);
  for (int64_t owner = 0; owner < size; ++owner)
    for (int64_t i = 0; i < length(owner); ++i) parts.set(owner, i, given_value(rank, owner, i));
  std::vector<float> sum(size_t(own) + 8, -77.0f);
  const int64_t before = ranks.bytes_sent();
  ranks.reduce_scatter_sum(parts.views(),
                           {reinterpret_cast<std::byte*>(sum.data()), DType::kF32, 1, own, own});
  int64_t sent = 0;
  for (int64_t owner = 0; owner < size; ++owner)
    sent += owner == rank ? 0 : length(owner) * size_of(type);
  check(ranks.bytes_sent() - before == sent, "{} bytes counted, {} sent",
        ranks.bytes_sent() - before, sent);
  for (int64_t i = 0; i < own; ++i) {
    const float expected = sum_in_order(type, size, rank, i);
    check(same_bits(sum[size_t(i)], expected), "sum {} of rank {}: {} instead of {}", i, rank,
          sum[size_t(i)], expected);
  }
  for (size_t i = size_t(own); i < sum.size(); ++i)
    check(sum[i] == -77.0f, "sum {} of {} was written", i, own);
  parts.check_guards();
  return bytes_of_floats(sum);
}

// The sum overwrites the rank's own part.
inline Bytes reduce_scatter_in_place_case(Transport& ranks) {
  const int64_t rank = ranks.rank(), size = ranks.size();
  Parts parts(DType::kF32, size, uneven_length);
  for (int64_t owner = 0; owner < size; ++owner)
    for (int64_t i = 0; i < uneven_length(owner); ++i)
      parts.set(owner, i, given_value(rank, owner, i));
  ranks.reduce_scatter_sum(parts.views(), parts.view(rank));
  std::vector<float> sum(parts.view(rank).as<float>(),
                         parts.view(rank).as<float>() + uneven_length(rank));
  for (int64_t i = 0; i < int64_t(sum.size()); ++i)
    check(same_bits(sum[size_t(i)], sum_in_order(DType::kF32, size, rank, i)), "sum {} of rank {}",
          i, rank);
  parts.check_guards();
  return bytes_of_floats(sum);
}

inline Bytes all_gather_case(Transport& ranks, DType type, int64_t (*length)(int64_t)) {
  const int64_t rank = ranks.rank(), size = ranks.size();
  Parts parts(type, size, length);
  const auto byte_of = [](int64_t owner, int64_t b) {
    return std::byte((owner * 53 + b * 7 + b / 256) & 0xFF);
  };
  const Tensor& own = parts.view(rank);
  for (int64_t b = 0; b < length(rank) * size_of(type); ++b) own.data[b] = byte_of(rank, b);
  const int64_t before = ranks.bytes_sent();
  ranks.all_gather(parts.views());
  check(ranks.bytes_sent() - before == (size - 1) * length(rank) * size_of(type),
        "{} bytes counted", ranks.bytes_sent() - before);
  Bytes all;
  for (int64_t owner = 0; owner < size; ++owner)
    for (int64_t b = 0; b < length(owner) * size_of(type); ++b) {
      all.push_back(parts.view(owner).data[b]);
      check(all.back() == byte_of(owner, b), "byte {} of the part of rank {}", b, owner);
    }
  parts.check_guards();
  return all;
}

// NaN yields to any number, and stays if no rank has one.
inline Bytes max_case(Transport& ranks) {
  const int64_t rank = ranks.rank(), size = ranks.size(), n = 3000;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(static_cast<size_t>(n)), expected(static_cast<size_t>(n));
  const auto value = [&](int64_t of, int64_t i) {
    if (i == 0) return nan;
    if (i == 1) return of == size - 1 ? -3.0f : nan;
    if (i == 2) return of == 0 ? -infinity : nan;
    if (i == 3) return of == 0 ? infinity : 1.0f;
    return given_value(of, 3, i);
  };
  for (int64_t i = 0; i < n; ++i) {
    values[size_t(i)] = value(rank, i);
    float most = nan;
    for (int64_t of = 0; of < size; ++of) most = std::fmax(most, value(of, i));
    expected[size_t(i)] = most;
  }
  const int64_t before = ranks.bytes_sent();
  ranks.all_reduce_max({reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1, n, n});
  check(ranks.bytes_sent() - before == (size - 1) * n * 4, "{} bytes counted",
        ranks.bytes_sent() - before);
  for (size_t i = 0; i < values.size(); ++i)
    check(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])),
          "maximum {}: {} instead of {}", i, values[i], expected[i]);
  return bytes_of_floats(values);
}

inline Bytes host_case(Transport& ranks) {
  const int64_t rank = ranks.rank(), size = ranks.size(), before = ranks.bytes_sent();
  Bytes result;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}}) {
    const Bytes mine(n, std::byte(rank + 1));
    Bytes all(n * size_t(size));
    ranks.gather_host(mine, all);
    for (size_t b = 0; b < all.size(); ++b)
      check(all[b] == std::byte(b / n + 1), "byte {} of {}", b, all.size());
    result.insert(result.end(), all.begin(), all.end());
    for (int64_t root = 0; root < size; ++root) {
      Bytes sent(n, std::byte(rank == root ? 100 + root : 0));
      ranks.broadcast_host(sent, root);
      for (const std::byte b : sent) check(b == std::byte(100 + root), "broadcast from {}", root);
      result.insert(result.end(), sent.begin(), sent.end());
    }
    ranks.barrier();
  }
  check(ranks.bytes_sent() == before, "host memory is not counted as tensors");
  return result;
}

// Many small calls of all kinds, whose results depend on each other: no message may be mistaken for
// another.
inline Bytes order_case(Transport& ranks) {
  const int64_t rank = ranks.rank(), size = ranks.size();
  std::vector<float> values(static_cast<size_t>(size), float(rank + 1));
  const auto part = [&](int64_t r) {
    return Tensor{reinterpret_cast<std::byte*>(&values[size_t(r)]), DType::kF32, 1, 1, 1};
  };
  std::vector<Tensor> parts;
  for (int64_t r = 0; r < size; ++r) parts.push_back(part(r));
  for (int round = 0; round < 50; ++round) {
    ranks.reduce_scatter_sum(parts, part(rank));
    ranks.all_gather(parts);
    values[0] += float(rank) * 0.25f;
    ranks.all_reduce_max(part(0));
    if (round % 5 == 0) ranks.broadcast_host({part(0).data, sizeof(float)}, round % size);
    for (float& x : values) x = x * 0.125f + 1.0f / float(round + 1);
  }
  return bytes_of_floats(values);
}

using Case = Bytes (*)(Transport&);
inline const std::map<std::string, Case>& collective_cases() {
  static const std::map<std::string, Case> kCases{
      {"sum fp32 uneven",
       [](Transport& c) { return reduce_scatter_case(c, DType::kF32, uneven_length); }},
      {"sum bf16 uneven",
       [](Transport& c) { return reduce_scatter_case(c, DType::kBF16, uneven_length); }},
      {"sum fp32 even",
       [](Transport& c) { return reduce_scatter_case(c, DType::kF32, even_length); }},
      {"sum bf16 even",
       [](Transport& c) { return reduce_scatter_case(c, DType::kBF16, even_length); }},
      {"sum in place", reduce_scatter_in_place_case},
      {"gather uint8 uneven",
       [](Transport& c) { return all_gather_case(c, DType::kU8, uneven_length); }},
      {"gather e4m3 even",
       [](Transport& c) { return all_gather_case(c, DType::kE4M3, even_length); }},
      {"gather fp64 uneven",
       [](Transport& c) { return all_gather_case(c, DType::kF64, uneven_length); }},
      {"max", max_case},
      {"host", host_case},
      {"order", order_case},
  };
  return kCases;
}

}  // namespace mpt::test
