#include <algorithm>

#include <fmt/format.h>
#include <omp.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/prefetch.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_prefetch.h"
#include "device/cpu/gemm_packing.h"

namespace mpt {
namespace {

// Arranges the threads as a grid over D. Each thread computes one rectangle and packs its own
// operands; the grid with the shortest rectangle edges is chosen.
struct Grid {
  int64_t rows = 1, columns = 1;

  Grid(const GemmCall& call, int threads) {
    const auto edges = [&](int64_t high) {
      return double(call.m()) / double(high) + double(call.n()) * double(high) / threads;
    };
    for (int64_t high = 2; high <= threads; ++high)
      if (threads % high == 0 && edges(high) < edges(rows)) rows = high;
    columns = threads / rows;
  }
};

// Converts a range of panels to a range of columns.
IndexRange columns_of_panels(IndexRange panels, int64_t n) {
  return {std::min(panels.begin * kPanelColumns, n), std::min(panels.end * kPanelColumns, n)};
}

// Scratch of a thread for a call, in floats.
struct Workspace {
  static constexpr int64_t kRows = align_up(PackedRows::kFloats, kAlignment);
  int64_t panels, sums = 0;

  Workspace(const GemmCall& call, int threads) {
    const Grid grid(call, threads);
    const int64_t rows = (call.m() + grid.rows - 1) / grid.rows,
                  columns = std::min(align_up(call.n(), kPanelColumns), kBlockColumns);
    panels = kDepth * columns;
    if (call.d.dtype != DType::kF32 && call.k() > kDepth) sums = rows * columns;
  }
  [[nodiscard]] int64_t floats() const { return kRows + panels + align_up(sums, kAlignment); }
};

float value_at(const float* scale_inv) { return scale_inv == nullptr ? 1.0f : *scale_inv; }

// to = before + alpha sums; just alpha sums if `before` is null.
template <class From, class To>
void add_sums(const float* sums, float alpha, int64_t count, const From* before, To* to) {
  const auto add = [&](int64_t n) {
    if (before == nullptr) {  // NOLINT(bugprone-branch-clone): it does not see the loops
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = from_float<To>(alpha * sums[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i)
        to[i] = from_float<To>(multiply_add(alpha, sums[i], to_float(before[i])));
    }
  };
  if (count == kPanelColumns) return add(kPanelColumns);
  add(count);
}

// Computes a rectangle of D.
class RectangleGemm {
 public:
  RectangleGemm(const GemmCall& call, IndexRange rows, IndexRange panels, const Workspace& needs,
                float* workspace)
      : a_{call.a, call.transpose_a == Transpose::kYes},
        b_{call.b, call.transpose_b == Transpose::kNo},
        d_(call.d),
        alpha_(value_at(call.scale_inv_a) * value_at(call.scale_inv_b)),
        accumulate_(call.accumulate),
        rows_(EvenParts::of_at_most(rows, kBlockRows)),
        panels_(EvenParts::of_at_most(panels, kBlockColumns / kPanelColumns)),
        terms_(EvenParts::of_at_most({0, call.k()}, kDepth)),
        first_row_(rows.begin),
        packed_rows_(workspace),
        packed_panels_(workspace + Workspace::kRows),
        sums_(packed_panels_ + needs.panels) {}

  void run() {
    for (int64_t column_block = 0; column_block < panels_.count(); ++column_block)
      for (int64_t part = 0; part < terms_.count(); ++part) {
        pack_panels(b_, columns(column_block), terms_[part], packed_panels_);
        for (int64_t row_block = 0; row_block < rows_.count(); ++row_block) {
          packed_rows_.pack(a_, rows_[row_block], terms_[part]);
          multiply(row_block, column_block, part);
        }
      }
  }

 private:
  [[nodiscard]] IndexRange columns(int64_t block) const {
    return columns_of_panels(panels_[block], d_.cols);
  }

  // The operands packed after this block of A: the next block of A, and a share of the next block
  // of B.
  [[nodiscard]] PanelPrefetch panels_to_prefetch(int64_t row_block, int64_t column_block,
                                                 int64_t part) const {
    PanelPrefetch memory;
    const bool more_rows = row_block + 1 < rows_.count(), more_terms = part + 1 < terms_.count(),
               more_columns = column_block + 1 < panels_.count();
    if (more_rows || more_terms)
      memory.follow(
          a_.block(rows_[more_rows ? row_block + 1 : 0], terms_[more_rows ? part : part + 1]));
    if (more_terms || more_columns) {
      const Tensor next = b_.block(columns(more_terms ? column_block : column_block + 1),
                                   terms_[more_terms ? part + 1 : 0]);
      const IndexRange share = EvenParts({0, next.rows}, rows_.count())[row_block];
      memory.follow(next.row_range(share.begin, share.size()));
    }
    return memory;
  }

  void multiply(int64_t row_block, int64_t column_block, int64_t part) {
    const IndexRange block = columns(column_block);
    const EvenParts& groups = packed_rows_.groups();
    const int64_t panels = panels_[column_block].size(), calls = panels * groups.count();
    PanelPrefetch memory = panels_to_prefetch(row_block, column_block, part);
    const int64_t lines = std::min((memory.lines() + calls - 1) / calls, kPrefetchLines);
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t group = 0; group < groups.count(); ++group) {
        const IndexRange rows = groups[group];
        Tile tile{.row = rows_[row_block].begin + rows.begin,
                  .column = block.begin + panel * kPanelColumns,
                  .rows = rows.size(),
                  .block = block,
                  .part = part};
        tile.columns = std::min(kPanelColumns, block.end - tile.column);
        const std::byte* ahead[kPrefetchLines];
        std::fill(memory.take(lines, ahead), ahead + kPrefetchLines, d_.data);
        add({.a = packed_rows_.group(group),
             .b = packed_panels_ + panel * terms_[part].size() * kPanelColumns,
             .depth = terms_[part].size(),
             .alpha = alpha_,
             .accumulate = Accumulate::kNo,
             .d = nullptr,
             .ldd = 0,
             .prefetched = ahead},
            tile);
      }
  }

  struct Tile {
    int64_t row, column, rows;
    IndexRange block;  // of columns
    int64_t part;
    int64_t columns = 0;
  };

  // Adds one part's sums to D, or to its FP32 partial sums between parts. In place if the target is
  // FP32 and whole vectors wide.
  void add(KernelCall call, const Tile& tile) {
    const int vectors = tile.columns <= kTileLanes ? 1 : kKernelVectors;
    const bool first = tile.part == 0, adds = accumulate_ == Accumulate::kYes;
    const auto run = [&] { run_kernel(int(tile.rows), vectors, packed_rows_.layout(), call); };
    if (d_.dtype == DType::kF32 && tile.columns == int64_t{vectors} * kTileLanes) {
      call.accumulate = first ? accumulate_ : Accumulate::kYes;
      call.d = d_.as<float>() + tile.row * d_.stride + tile.column;
      call.ldd = d_.stride;
      return run();
    }
    if (d_.dtype == DType::kBF16 && !is_last(tile) && !(first && adds)) {
      call.accumulate = first ? Accumulate::kNo : Accumulate::kYes;
      call.d = kept(tile, 0);
      call.ldd = kept_stride(tile);
      return run();
    }
    float sums[kKernelRows * kPanelColumns];
    call.alpha = 1.0f;
    call.d = sums;
    call.ldd = kPanelColumns;
    prefetch_rows(tile);
    run();
    for (int64_t r = 0; r < tile.rows; ++r) add_row(sums + r * kPanelColumns, tile, r);
  }

  // Prefetches what add_row() will read and write.
  void prefetch_rows(const Tile& tile) const {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t at = (tile.row + r) * d_.stride + tile.column;
      prefetch<Use::kWrite>(d_.data + at * size_of(d_.dtype), kPanelColumns * size_of(d_.dtype));
      if (d_.dtype == DType::kBF16 && tile.part > 0) prefetch(kept(tile, r), kPanelColumns * 4);
    }
  }
  // Adds a row of a tile that the kernel cannot add in place.
  void add_row(const float* sums, const Tile& tile, int64_t r) const {
    const bool first = tile.part == 0, adds = accumulate_ == Accumulate::kYes;
    const int64_t at = (tile.row + r) * d_.stride + tile.column;
    const auto add = [&](const auto* before, auto* to) {
      add_sums(sums, alpha_, tile.columns, before, to);
    };
    if (d_.dtype == DType::kF32) {
      float* const d = d_.as<float>() + at;
      return add(first && !adds ? nullptr : d, d);
    }
    bf16* const d = d_.as<bf16>() + at;
    if (!first)
      add(kept(tile, r), d);
    else if (is_last(tile))
      add(adds ? d : nullptr, d);
    else
      add(d, kept(tile, r));
  }

  [[nodiscard]] bool is_last(const Tile& tile) const { return tile.part + 1 == terms_.count(); }
  // For BF16 results the sums are kept in FP32 between parts: whole panels of a block of columns.
  [[nodiscard]] static int64_t kept_stride(const Tile& tile) {
    return align_up(tile.block.size(), kPanelColumns);
  }
  [[nodiscard]] float* kept(const Tile& tile, int64_t r) const {
    return sums_ + (tile.row + r - first_row_) * kept_stride(tile) + tile.column - tile.block.begin;
  }

  Factor a_, b_;
  Tensor d_;
  float alpha_;
  Accumulate accumulate_;
  EvenParts rows_, panels_, terms_;  // in blocks
  int64_t first_row_;
  PackedRows packed_rows_;
  float *packed_panels_, *sums_;
};

// For smaller GEMMs waking the threads takes longer than the GEMM.
constexpr double kFlopsForThreads = 2e6;

}  // namespace

void CpuGemm::reserve(Allocator& allocator, std::span<const GemmCall> calls) {
  int64_t floats = 0;
  for (const GemmCall& call : calls) floats = std::max(floats, Workspace(call, threads_).floats());
  scratch_.reserve(allocator, threads_ * floats * 4);
}

void CpuGemm::run(const GemmCall& call) {
  check_shapes(call);
  if (call.m() == 0 || call.n() == 0) return;
  const Workspace needs(call, threads_);
  check(threads_ * needs.floats() * 4 <= scratch_.bytes(),
        "GEMM needs {} bytes of scratch, reserved {}", threads_ * needs.floats() * 4,
        scratch_.bytes());
  const Grid grid(call, threads_);
  const EvenParts rows({0, call.m()}, grid.rows),
      panels({0, align_up(call.n(), kPanelColumns) / kPanelColumns}, grid.columns);
#pragma omp parallel for schedule(static) \
    num_threads(threads_) if (flops_of(call) >= kFlopsForThreads)
  for (int64_t part = 0; part < threads_; ++part) {
    const IndexRange own_rows = rows[part / grid.columns], own_panels = panels[part % grid.columns];
    if (own_rows.size() == 0 || own_panels.size() == 0) continue;
    RectangleGemm(call, own_rows, own_panels, needs,
                  scratch_.floats() + omp_get_thread_num() * needs.floats())
        .run();
  }
}

std::string cpu_gemm_description() {
#if defined(__AVX512F__)
  const char* instructions = "AVX-512";
#elif defined(__AVX__) && defined(__FMA__)
  const char* instructions = "AVX2";
#elif defined(__aarch64__)
  const char* instructions = "Neon";
#else
  const char* instructions = "baseline instructions: several times slower than most machines allow";
#endif
  return fmt::format("own kernels for {}, blocks of {} x {}", instructions, kKernelRows,
                     kPanelColumns);
}

}  // namespace mpt
