#include "device/cpu/bf16_kernel.h"

#include <array>
#include <utility>

#include "core/check.h"
#include "core/prefetch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

// The instructions are detected at run time, whatever the build targets.
#define MPT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))
#define MPT_AMX_BF16 __attribute__((target("avx512f,amx-tile,amx-bf16")))
#endif

namespace mpt {

#if defined(__x86_64__)
namespace {

// d (+)= alpha sums, for one row.
__attribute__((target("avx512f"))) inline void add_row(const PairKernelCall& call, int64_t row,
                                                       int vector, __m512 sums) {
  float* const d = call.d + row * call.ldd + int64_t{vector} * kPairLanes;
  const __m512 alpha = _mm512_set1_ps(call.alpha);
  _mm512_storeu_ps(d, call.accumulate == Accumulate::kYes
                          ? _mm512_fmadd_ps(alpha, sums, _mm512_loadu_ps(d))
                          : _mm512_mul_ps(alpha, sums));
}

// --- vdpbf16ps -----------------------------------------------------------------------------------

template <int kRows, int kVectors>
MPT_AVX512_BF16 void avx512_kernel(const PairKernelCall& call) {
  constexpr int64_t kColumns = pair_columns(kAvx512Vectors);
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_ps();
  const Bf16Pair* a = call.a.data;
  for (int64_t pair = 0; pair < call.pairs; ++pair, a += call.a.pair_stride) {
    if (pair % kPairsPerLine == 0 && call.prefetched != nullptr)
      prefetch<Use::kRead, Cache::kSecond>(call.prefetched[pair / kPairsPerLine], kCacheLine);
    __m512bh b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      b[v] = (__m512bh)_mm512_loadu_si512(call.b + pair * kColumns + v * kPairLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto of_a = (__m512bh)_mm512_set1_epi32(int(a[i * call.a.row_stride]));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], of_a, b[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) add_row(call, i, v, sums[i][v]);
}

// One per number of rows and, within it, per number of vectors.
using Kernel = void (*)(const PairKernelCall&);
constexpr auto kAvx512Kernels = []<int... kKernel>(std::integer_sequence<int, kKernel...>) {
  return std::array<Kernel, sizeof...(kKernel)>{
      avx512_kernel<kKernel / kAvx512Vectors + 1, kKernel % kAvx512Vectors + 1>...};
}
(std::make_integer_sequence<int, kAvx512Rows * kAvx512Vectors>{});

// --- AMX -----------------------------------------------------------------------------------------

// Intel's Software Developer's Manual, LDTILECFG: palette 1, tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

constexpr int64_t kAmxColumns = pair_columns(kAmxVectors), kPanelBytes = kAmxColumns * 4;

// All of it must be in memory: GCC 12 believes that the instruction reads less.
constexpr TileShapes kTileShapes;
MPT_AMX_BF16 void set_tile_shapes() { _tile_loadconfig(&kTileShapes); }
MPT_AMX_BF16 void release_tiles() { _tile_release(); }

// Stores the sums of tiles 0 to 3, [2 x 2] of 16 x 16, to `sums` [kAmxRows, kAmxColumns].
MPT_AMX_BF16 void store_tiles(float* sums) {
  _tile_stored(0, sums, kPanelBytes);
  _tile_stored(1, sums + kPairLanes, kPanelBytes);
  _tile_stored(2, sums + kAmxTileRows * kAmxColumns, kPanelBytes);
  _tile_stored(3, sums + kAmxTileRows * kAmxColumns + kPairLanes, kPanelBytes);
}

MPT_AMX_BF16 void multiply_tiles(const PairKernelCall& call) {
  const int64_t row_bytes = call.a.row_stride * 4;
  const bool more_rows = call.rows > kAmxTileRows, more_columns = call.vectors > 1;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t pair = 0; pair < call.pairs; pair += kPairsPerTile) {
    for (int64_t line = 0; call.prefetched != nullptr && line < kPairsPerTile / kPairsPerLine;
         ++line)
      prefetch<Use::kRead, Cache::kSecond>(call.prefetched[pair / kPairsPerLine + line],
                                           kCacheLine);
    _tile_loadd(4, call.a.data + pair, row_bytes);
    _tile_loadd(6, call.b + pair * kAmxColumns, kPanelBytes);
    _tile_dpbf16ps(0, 4, 6);
    if (more_columns) {
      _tile_loadd(7, call.b + pair * kAmxColumns + kPairLanes, kPanelBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (more_rows) {
      _tile_loadd(5, call.a.from(kAmxTileRows, pair).data, row_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (more_columns) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

// --- detection -----------------------------------------------------------------------------------

bool processor_has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5)) != 0;
}

bool processor_has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return processor_has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

// Linux requires a process to request the tile registers before use (arch_prctl(2), since 5.16).
bool system_grants_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

void run_avx512_kernel(const PairKernelCall& call) {
  kAvx512Kernels[size_t((call.rows - 1) * kAvx512Vectors + call.vectors - 1)](call);
}

MPT_AMX_BF16 void run_amx_kernel(const PairKernelCall& call) {
  alignas(64) float sums[kAmxRows * kAmxColumns];
  multiply_tiles(call);
  store_tiles(sums);
  for (int64_t row = 0; row < call.rows; ++row)
    for (int v = 0; v < call.vectors; ++v)
      add_row(call, row, v, _mm512_loadu_ps(sums + row * kAmxColumns + int64_t{v} * kPairLanes));
}

MPT_AVX512_BF16 void round_neighbours(const float* x, int64_t count, Bf16Pair* to) {
  for (int64_t i = 0; i < count; i += kPairLanes)
    _mm512_storeu_si512(to + i,
                        (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 2 * i + kPairLanes),
                                                     _mm512_loadu_ps(x + 2 * i)));
}

MPT_AVX512_BF16 void round_rows(const float* x, int64_t rows, int64_t columns, Bf16Pair* to) {
  alignas(64) uint16_t interleaved[2 * kPairLanes];
  for (int i = 0; i < 2 * kPairLanes; ++i) interleaved[i] = uint16_t(i / 2 + i % 2 * kPairLanes);
  const __m512i order = _mm512_load_si512(interleaved);
  for (int64_t row = 0; row < rows; row += 2, x += 2 * columns, to += columns)
    for (int64_t c = 0; c < columns; c += kPairLanes)
      _mm512_storeu_si512(to + c,
                          _mm512_permutexvar_epi16(
                              order, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + columns + c),
                                                                  _mm512_loadu_ps(x + c))));
}

AmxTiles::AmxTiles() { set_tile_shapes(); }
AmxTiles::~AmxTiles() { release_tiles(); }

std::string why_no_bf16_dot(Bf16Dot dot) {
  if (dot == Bf16Dot::kAvx512Bf16 && !processor_has_avx512_bf16())
    return "the processor has no AVX512_BF16";
  if (dot == Bf16Dot::kAmxBf16) {
    if (!processor_has_amx_bf16()) return "the processor has no AMX-BF16, or no AVX512_BF16";
    if (!system_grants_tiles()) return "the system does not grant the use of AMX";
  }
  return "";
}

Bf16Dot fastest_bf16_dot() {
  if (why_no_bf16_dot(Bf16Dot::kAmxBf16).empty()) return Bf16Dot::kAmxBf16;
  return processor_has_avx512_bf16() && __builtin_cpu_is("amd") ? Bf16Dot::kAvx512Bf16
                                                                : Bf16Dot::kFma;
}

#else

void run_avx512_kernel(const PairKernelCall&) { throw LogicError("no x86-64"); }
void run_amx_kernel(const PairKernelCall&) { throw LogicError("no x86-64"); }
void round_neighbours(const float*, int64_t, Bf16Pair*) { throw LogicError("no x86-64"); }
void round_rows(const float*, int64_t, int64_t, Bf16Pair*) { throw LogicError("no x86-64"); }
AmxTiles::AmxTiles() = default;
AmxTiles::~AmxTiles() = default;

std::string why_no_bf16_dot(Bf16Dot dot) {
  const bool any = dot == Bf16Dot::kFma || dot == Bf16Dot::kAuto;
  return any ? "" : "it is an instruction of x86-64";
}
Bf16Dot fastest_bf16_dot() { return Bf16Dot::kFma; }

#endif

}  // namespace mpt
