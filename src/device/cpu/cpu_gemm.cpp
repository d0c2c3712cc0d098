#include <algorithm>

#include <fmt/format.h>
#include <omp.h>
#include <spdlog/spdlog.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/prefetch.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_prefetch.h"
#include "device/cpu/gemm_numbers.h"

namespace mpt {
namespace {

// Arranges the threads as a grid over D. Each thread computes one rectangle and packs its own
// operands; the grid with the shortest rectangle edges wins.
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
template <class Numbers>
IndexRange columns_of_panels(IndexRange panels, int64_t n) {
  return {std::min(panels.begin * Numbers::kColumns, n),
          std::min(panels.end * Numbers::kColumns, n)};
}

// A thread's scratch for a call, in 4-byte words.
struct Workspace {
  int64_t rows, panels, sums = 0;

  template <class Numbers>
  static Workspace of(const GemmCall& call, int threads) {
    const Grid grid(call, threads);
    const int64_t most_rows = (call.m() + grid.rows - 1) / grid.rows,
                  columns = std::min(align_up(call.n(), Numbers::kColumns), kBlockColumns);
    Workspace needs{.rows = align_up(Numbers::kRowWords, kAlignment),
                    .panels = Numbers::panel_words(Numbers::kDepth) * columns / Numbers::kColumns};
    if (call.d.dtype != DType::kF32 && call.k() > Numbers::kDepth)
      needs.sums = align_up(most_rows * columns, kAlignment);
    return needs;
  }
  [[nodiscard]] int64_t words() const { return rows + panels + sums; }
};

float value_at(const float* scale_inv) { return scale_inv == nullptr ? 1.0f : *scale_inv; }

// to = before + alpha sums, or just alpha sums if `before` is null. The usual count has its own
// loop.
template <int64_t kUsual, class From, class To>
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
  if (count == kUsual) return add(kUsual);
  add(count);
}

// Computes a rectangle of D.
template <class Numbers>
class RectangleGemm {
  using Word = typename Numbers::Word;
  static constexpr int64_t kColumns = Numbers::kColumns;

 public:
  RectangleGemm(const GemmCall& call, IndexRange rows, IndexRange panels, const Workspace& needs,
                float* workspace)
      : a_{call.a, call.transpose_a == Transpose::kYes},
        b_{call.b, call.transpose_b == Transpose::kNo},
        d_(call.d),
        alpha_(value_at(call.scale_inv_a) * value_at(call.scale_inv_b)),
        accumulate_(call.accumulate),
        rows_(EvenParts::of_at_most(rows, Numbers::kBlockRows)),
        panels_(EvenParts::of_at_most(panels, kBlockColumns / kColumns)),
        terms_(EvenParts::of_at_most({0, call.k()}, Numbers::kDepth)),
        first_row_(rows.begin),
        packed_rows_(reinterpret_cast<Word*>(workspace)),
        packed_panels_(reinterpret_cast<Word*>(workspace + needs.rows)),
        sums_(workspace + needs.rows + needs.panels) {}

  void run() {
    [[maybe_unused]] const typename Numbers::Session session;
    for (int64_t column_block = 0; column_block < panels_.count(); ++column_block)
      for (int64_t part = 0; part < terms_.count(); ++part) {
        Numbers::pack(b_, columns(column_block), terms_[part], packed_panels_);
        for (int64_t row_block = 0; row_block < rows_.count(); ++row_block) {
          packed_rows_.pack(a_, rows_[row_block], terms_[part]);
          multiply(row_block, column_block, part);
        }
      }
  }

 private:
  [[nodiscard]] IndexRange columns(int64_t block) const {
    return columns_of_panels<Numbers>(panels_[block], d_.cols);
  }

  // Operands packed after this block of A: the next block of A, and a share of the next block of B.
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
                  .column = block.begin + panel * kColumns,
                  .rows = rows.size(),
                  .block = block,
                  .part = part};
        tile.columns = std::min(kColumns, block.end - tile.column);
        const std::byte* ahead[kPrefetchLines];
        std::fill(memory.take(lines, ahead), ahead + kPrefetchLines, d_.data);
        const int vectors = int((tile.columns + Numbers::kLanes - 1) / Numbers::kLanes);
        add(tile, vectors, [&](const TileTarget& to) {
          Numbers::run(packed_rows_, group,
                       packed_panels_ + panel * Numbers::panel_words(terms_[part].size()),
                       terms_[part].size(), vectors, to, ahead);
        });
      }
  }

  struct Tile {
    int64_t row, column, rows;
    IndexRange block;  // columns
    int64_t part;
    int64_t columns = 0;
  };

  // Adds one part's sums, run(target), to D, or to its FP32 partial sums between parts. In place if
  // the target is FP32 and whole vectors wide.
  template <class Run>
  void add(const Tile& tile, int vectors, const Run& run) {
    const bool first = tile.part == 0, adds = accumulate_ == Accumulate::kYes;
    if (d_.dtype == DType::kF32 && tile.columns == int64_t{vectors} * Numbers::kLanes)
      return run({.alpha = alpha_,
                  .accumulate = first ? accumulate_ : Accumulate::kYes,
                  .d = d_.as<float>() + tile.row * d_.stride + tile.column,
                  .ldd = d_.stride});
    if (d_.dtype == DType::kBF16 && !is_last(tile) && !(first && adds))
      return run({.alpha = alpha_,
                  .accumulate = first ? Accumulate::kNo : Accumulate::kYes,
                  .d = kept(tile, 0),
                  .ldd = kept_stride(tile)});
    float sums[Numbers::kRows * kColumns];
    prefetch_rows(tile);
    run({.alpha = 1.0f, .accumulate = Accumulate::kNo, .d = sums, .ldd = kColumns});
    for (int64_t r = 0; r < tile.rows; ++r) add_row(sums + r * kColumns, tile, r);
  }

  // Prefetches the memory that add_row() will read and write.
  void prefetch_rows(const Tile& tile) const {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t at = (tile.row + r) * d_.stride + tile.column;
      prefetch<Use::kWrite>(d_.data + at * size_of(d_.dtype), kColumns * size_of(d_.dtype));
      if (d_.dtype == DType::kBF16 && tile.part > 0) prefetch(kept(tile, r), kColumns * 4);
    }
  }
  // Adds a row of a tile that the kernel cannot add in place.
  void add_row(const float* sums, const Tile& tile, int64_t r) const {
    const bool first = tile.part == 0, adds = accumulate_ == Accumulate::kYes;
    const int64_t at = (tile.row + r) * d_.stride + tile.column;
    const auto add = [&](const auto* before, auto* to) {
      add_sums<kColumns>(sums, alpha_, tile.columns, before, to);
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
    return align_up(tile.block.size(), kColumns);
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
  typename Numbers::Rows packed_rows_;
  Word* packed_panels_;
  float* sums_;
};

// Waking the threads takes longer than a smaller GEMM.
constexpr double kFlopsForThreads = 2e6;

template <class Numbers>
void run_in(const GemmCall& call, int threads, float* scratch) {
  const auto needs = Workspace::of<Numbers>(call, threads);
  const Grid grid(call, threads);
  const EvenParts rows({0, call.m()}, grid.rows),
      panels({0, align_up(call.n(), Numbers::kColumns) / Numbers::kColumns}, grid.columns);
#pragma omp parallel for schedule(static) \
    num_threads(threads) if (flops_of(call) >= kFlopsForThreads)
  for (int64_t part = 0; part < threads; ++part) {
    const IndexRange own_rows = rows[part / grid.columns], own_panels = panels[part % grid.columns];
    if (own_rows.size() == 0 || own_panels.size() == 0) continue;
    RectangleGemm<Numbers>(call, own_rows, own_panels, needs,
                           scratch + omp_get_thread_num() * needs.words())
        .run();
  }
}

// Calls f.operator()<Numbers>() with the numbers that these operands are packed as.
template <class F>
auto with_numbers(const GemmCall& call, Bf16Dot dot, const F& f) {
  const bool exact = is_exact_in_bf16(call.a.dtype) && is_exact_in_bf16(call.b.dtype);
  if (exact && dot == Bf16Dot::kAvx512Bf16) return f.template operator()<Bf16Pairs<Avx512Bf16>>();
  if (exact && dot == Bf16Dot::kAmxBf16) return f.template operator()<Bf16Pairs<AmxBf16>>();
  return f.template operator()<Fp32Numbers>();
}

// Possible results of restore() if `wanted` is requested.
std::vector<Bf16Dot> possible_choices(Bf16Dot wanted) {
  if (wanted != Bf16Dot::kAuto) return {wanted};
  std::vector<Bf16Dot> possible;
  for (const Bf16Dot dot : {Bf16Dot::kFma, Bf16Dot::kAvx512Bf16, Bf16Dot::kAmxBf16})
    if (why_no_bf16_dot(dot).empty()) possible.push_back(dot);
  return possible;
}

}  // namespace

CpuGemm::CpuGemm(int threads, Bf16Dot dot)
    : threads_(threads),
      wanted_(dot),
      dot_(dot == Bf16Dot::kAuto ? fastest_bf16_dot() : dot),
      possible_(possible_choices(dot)) {}

int64_t CpuGemm::scratch_bytes(const GemmCall& call) const {
  int64_t bytes = 0;
  for (const Bf16Dot dot : possible_)
    with_numbers(call, dot, [&]<class Numbers>() {
      bytes = std::max(bytes, threads_ * Workspace::of<Numbers>(call, threads_).words() * 4);
    });
  return bytes;
}

void CpuGemm::reserve(Allocator& allocator, std::span<const GemmCall> calls) {
  int64_t bytes = 0;
  for (const GemmCall& call : calls) bytes = std::max(bytes, scratch_bytes(call));
  scratch_.reserve(allocator, bytes);
}

void CpuGemm::run(const GemmCall& call) {
  check_shapes(call);
  if (call.m() == 0 || call.n() == 0) return;
  check(scratch_bytes(call) <= scratch_.bytes(), "GEMM needs {} bytes of scratch, reserved {}",
        scratch_bytes(call), scratch_.bytes());
  with_numbers(call, dot_,
               [&]<class Numbers>() { run_in<Numbers>(call, threads_, scratch_.floats()); });
}

namespace {

constexpr const char *kChoiceKey = "bf16 dot", *kFormerChoiceKey = "bf16 products";

}  // namespace

std::vector<GemmChoice> CpuGemm::choices() const {
  if (dot_ == Bf16Dot::kFma) return {};
  return {{kChoiceKey, std::string(name_of(dot_))}};
}

void CpuGemm::restore(std::span<const GemmChoice> choices) {
  std::string stored(name_of(Bf16Dot::kFma));
  for (const GemmChoice& choice : choices)
    if (choice.key == kChoiceKey || choice.key == kFormerChoiceKey) stored = choice.algorithm;
  if (stored == name_of(dot_)) return;
  const auto known = enum_from_name<Bf16Dot>(stored);
  if (wanted_ == Bf16Dot::kAuto && known && why_no_bf16_dot(*known).empty()) {
    dot_ = *known;
    spdlog::info("device.bf16_dot = auto: dot products of BF16 numbers are summed by {}", stored);
    return;
  }
  spdlog::warn(
      "resume: dot products of BF16 numbers were summed by {}, now by {} (device.bf16_dot): low "
      "bits of what follows differ",
      stored, name_of(dot_));
}

std::string CpuGemm::description() const {
  const std::string own = cpu_gemm_description();
  if (dot_ == Bf16Dot::kFma) return own;
  return own + (dot_ == Bf16Dot::kAmxBf16 ? "; BF16 by AMX" : "; BF16 by AVX512_BF16");
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
