#include "machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include <unistd.h>

namespace mpt {
namespace {

// The widest vectors of the target instruction set, by the compiler's extension.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
// aligned(4): the loop over memory need not care where its array begins.
using Vector = float __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
constexpr int kLanes = kVectorBytes / int(sizeof(float));

// Independent chains. Two units with a latency of 4 need 8, Arm's four need 16; with the two
// constants they must fit in registers, of which AVX2 has 16 and the others 32.
constexpr int kChains = kVectorBytes == 32 ? 12 : 24;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds of the fastest of the runs that fit in `budget` seconds; at least three runs, the first
// of which warms up.
template <class F>
double best_seconds(double budget, const F& pass) {
  const auto begin = std::chrono::steady_clock::now();
  pass();
  double best = 1e30;
  for (int i = 0; i < 2 || seconds_since(begin) < budget; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pass();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

// x = x scale + offset in every lane of every chain. The result keeps the compiler from removing
// the loop.
float multiply_add(int64_t repeats, float scale, float offset) {
  const Vector a = Vector{} + scale, b = Vector{} + offset;
  Vector x[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) x[i] = Vector{} + float(i);
  for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * a + b;
  }
  Vector sum{};
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum += x[i];
  return sum[0];
}

}  // namespace

double measured_fma_flops(int threads, double budget) {
  constexpr int64_t kRepeats = 1 << 18;  // a few milliseconds: some passes are not interrupted
  std::vector<float> results(static_cast<size_t>(threads) * 16);  // a cache line each
  const double seconds = best_seconds(budget, [&] {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; ++t) results[size_t(t) * 16] += multiply_add(kRepeats, 0.5f, 0.5f);
  });
  volatile const float used = results[0];
  static_cast<void>(used);
  return 2.0 * kChains * kLanes * double(kRepeats) * threads / seconds;
}

MemoryStream::MemoryStream(int threads)
    : threads_(threads),
      share_(stream_array_bytes() / kVectorBytes / threads),
      array_(new float[size_t(share_ * threads) * kLanes]) {  // not touched here
  each([](Vector& x) { x = Vector{} + 1.0f; });
}

template <class F>
void MemoryStream::each(const F& f) {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
  for (int t = 0; t < threads_; ++t) {
    auto* const part = reinterpret_cast<Vector*>(array_.get() + t * share_ * kLanes);
    for (int64_t i = 0; i < share_; ++i) f(part[i]);
  }
}

// Every element is read and written in place, as in optimizers: no line is fetched only to be
// overwritten, so the bytes counted are the bytes moved.
double MemoryStream::bytes_per_second(double budget) {
  const double seconds =
      best_seconds(budget, [&] { each([](Vector& x) { x = x * 0.5f + 0.5f; }); });
  return 2.0 * double(share_ * threads_) * kVectorBytes / seconds;
}

long stream_array_bytes() {
  constexpr long kLeast = 256L << 20, kMost = 1L << 30;
  return std::clamp(4 * sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost);
}

MachineLimits measured_machine_limits(int threads) {
  return {.fma_flops = measured_fma_flops(threads, 0.2),
          .stream_bytes_per_second = MemoryStream(threads).bytes_per_second(0.2)};
}

}  // namespace mpt
