#include "device/cuda/cuda_gemm.h"

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "device/cuda/cublas_lt.h"
#include "device/cuda/gemm_tuning.h"

namespace mpt {

// --- algorithms as text --------------------------------------------------------------------------

namespace {

using Algorithm = cublasLtMatmulAlgo_t;
constexpr size_t kWords = std::size(Algorithm{}.data);
constexpr size_t kDigits = 16;  // hex digits per word
constexpr std::string_view kBeforeWords = ": ";

std::string text_of(const Algorithm& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

Algorithm algorithm_of(std::string_view text, const GemmChoice& choice) {
  Algorithm algorithm{};
  bool whole = text.size() == kWords * kDigits;
  for (size_t i = 0; whole && i < kWords; ++i) {
    const char* const first = text.data() + i * kDigits;
    const auto [end, problem] = std::from_chars(first, first + kDigits, algorithm.data[i], 16);
    whole = problem == std::errc{} && end == first + kDigits;
  }
  if (!whole)
    throw error("algorithm '{}' stored for the GEMM {}: expected {} hexadecimal digits after '{}'",
                choice.algorithm, choice.key, kWords * kDigits, kBeforeWords);
  return algorithm;
}

// "130100" means 13.1.0.
std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::string cublas_lt_description() { return "cuBLASLt " + version_text(cublasLtGetVersion()); }

// --- library requirements for a kind of GEMM -----------------------------------------------------

namespace {

// Layouts of the library's operands b, a and d, each the transpose of its row-major self.
struct Descriptors {
  MatmulDescription description;
  MatrixLayout first, second, result;
};

struct Plan {
  Descriptors descriptors;
  Algorithm algorithm;
};

cublasComputeType_t compute_type_of(const GemmKey& key) {
  return key.multiply == Multiply::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

int32_t operation_of(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// Rows of a row-major matrix are columns here.
MatrixLayout layout_of(const GemmOperand& x) {
  return make_matrix_layout(cuda_type_of(x.dtype), x.cols, x.rows, x.stride);
}

Descriptors descriptors_of(const GemmKey& key) {
  Descriptors descriptors{.description = make_matmul_description(compute_type_of(key)),
                          .first = layout_of(key.b),
                          .second = layout_of(key.a),
                          .result = layout_of(key.d)};
  set_attribute(descriptors.description, CUBLASLT_MATMUL_DESC_TRANSA,
                operation_of(key.transpose_b));
  set_attribute(descriptors.description, CUBLASLT_MATMUL_DESC_TRANSB,
                operation_of(key.transpose_a));
  if (key.multiply == Multiply::kFastFp8)
    set_attribute(descriptors.description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  return descriptors;
}

// Allows split sums only if their parts are added in a fixed order, in FP32.
MatmulPreference preference_of(const GemmKey& key) {
  MatmulPreference preference = make_matmul_preference();
  const auto alignment = [](const GemmOperand& x) { return static_cast<uint32_t>(x.alignment); };
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                uint64_t{CudaGemm::kWorkspaceBytes});
  set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(key.b));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(key.a));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(key.d));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(key.d));
  return preference;
}

constexpr int kFirstFp8Capability = 89;

// Suggests why no algorithm may exist.
std::string advice_for(const GemmKey& key, int compute_capability) {
  if (!key.fp8()) return "";
  if (compute_capability < kFirstFp8Capability)
    return fmt::format("; FP8 GEMMs need compute capability {}.{}", kFirstFp8Capability / 10,
                       kFirstFp8Capability % 10);
  return "; FP8 GEMMs need rows, columns and row strides that are multiples of 16, and operands "
         "aligned to 16 bytes";
}

}  // namespace

// Descriptors and algorithms of the GEMM kinds seen so far.
class CudaGemm::Library {
 public:
  explicit Library(CudaGemmOptions options) : options_(std::move(options)) {}

  void run(const GemmCall& call, const Scratch& workspace);
  // Chooses the algorithm before the first run, by timing if the options say so.
  void prepare(const GemmKey& key, const Scratch& workspace);
  [[nodiscard]] std::vector<GemmChoice> choices() const;
  void restore(std::span<const GemmChoice> choices);
  [[nodiscard]] int64_t plans() const { return static_cast<int64_t>(plans_.size()); }

 private:
  struct Operands {
    const void *a, *b;
    void* d;
  };
  cublasStatus_t enqueue(const GemmKey& key, const Plan& plan, const Operands& x,
                         const Scratch& workspace);
  Plan& plan_for(const GemmKey& key);
  Algorithm fastest(const GemmKey& key, Plan& plan, const Scratch& workspace);
  std::vector<Algorithm> candidates(const GemmKey& key, const Descriptors& descriptors, int most);
  std::optional<Algorithm> restored(const GemmKey& key, const Descriptors& descriptors);

  CudaGemmOptions options_;
  CublasLt handle_ = make_cublas_lt();
  // Library and GPU that a stored choice is valid for.
  std::string identity_ =
      fmt::format("{} on {} ({}.{})", cublas_lt_description(), options_.gpu,
                  options_.compute_capability / 10, options_.compute_capability % 10);
  std::map<std::string, Algorithm> chosen_;  // keyed by GemmKey::name()
  std::map<GemmKey, Plan> plans_;
};

// --- choosing ------------------------------------------------------------------------------------

// Candidates, fastest first by the library's estimate.
std::vector<Algorithm> CudaGemm::Library::candidates(const GemmKey& key,
                                                     const Descriptors& descriptors, int most) {
  const MatmulPreference preference = preference_of(key);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), descriptors.description.get(), descriptors.first.get(),
      descriptors.second.get(), descriptors.result.get(), descriptors.result.get(),
      preference.get(), most, results.data(), &count);
  const bool refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  if (!refused) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> algorithms;
  for (int i = 0; !refused && i < count; ++i)
    if (results[size_t(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[size_t(i)].algo);
  if (algorithms.empty())
    throw error("{} has no algorithm for the GEMM {}{}", identity_, key.name(),
                advice_for(key, options_.compute_capability));
  return algorithms;
}

// The stored choice, if it exists and the library accepts it.
std::optional<Algorithm> CudaGemm::Library::restored(const GemmKey& key,
                                                     const Descriptors& descriptors) {
  const auto found = chosen_.find(key.name());
  if (found == chosen_.end()) return std::nullopt;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_.get(), descriptors.description.get(), descriptors.first.get(),
                              descriptors.second.get(), descriptors.result.get(),
                              descriptors.result.get(), &found->second, &result);
  const bool accepted = status == CUBLAS_STATUS_SUCCESS;
  if (accepted && result.workspaceSize <= size_t{kWorkspaceBytes}) return found->second;
  spdlog::warn(
      "GEMM {}: the stored algorithm was rejected ({}); with another one, results may differ in "
      "their last bits from those of the stored run",
      key.name(),
      accepted ? fmt::format("it takes a workspace of {} bytes, at most {} are given",
                             result.workspaceSize, kWorkspaceBytes)
               : answer_of(status));
  return std::nullopt;
}

Plan& CudaGemm::Library::plan_for(const GemmKey& key) {
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  check_supported(key);
  Plan plan{.descriptors = descriptors_of(key), .algorithm = {}};
  const std::optional<Algorithm> stored = restored(key, plan.descriptors);
  plan.algorithm = stored ? *stored : candidates(key, plan.descriptors, 1).front();
  chosen_[key.name()] = plan.algorithm;
  return plans_.emplace(key, std::move(plan)).first->second;
}

void CudaGemm::Library::prepare(const GemmKey& key, const Scratch& workspace) {
  if (plans_.contains(key)) return;
  if (options_.tuning == GemmTuning::kOff || chosen_.contains(key.name())) {
    plan_for(key);
    return;
  }
  Plan plan{.descriptors = descriptors_of(key), .algorithm = {}};
  plan.algorithm = fastest(key, plan, workspace);
  chosen_[key.name()] = plan.algorithm;
  plans_.emplace(key, std::move(plan));
}

Algorithm CudaGemm::Library::fastest(const GemmKey& key, Plan& plan, const Scratch& workspace) {
  const std::vector<Algorithm> algorithms = candidates(key, plan.descriptors, kCandidates);
  const auto run = [&](const GemmAddresses& x, size_t candidate) {
    plan.algorithm = algorithms[candidate];
    return enqueue(key, plan, {x.a, x.b, x.d}, workspace) == CUBLAS_STATUS_SUCCESS;
  };
  const auto timed =
      time_candidates({.key = key, .candidates = algorithms.size(), .run = run}, options_.stream);
  if (!timed) return algorithms.front();
  spdlog::debug("GEMM {}: algorithm {} of {}, {:.1f} us (the first: {:.1f} us)", key.name(),
                timed->best + 1, algorithms.size(), timed->best_us, timed->first_us);
  return algorithms[timed->best];
}

std::vector<GemmChoice> CudaGemm::Library::choices() const {
  std::vector<GemmChoice> all;
  for (const auto& [key, algorithm] : chosen_)
    all.push_back({key, fmt::format("{}{}{}", identity_, kBeforeWords, text_of(algorithm))});
  return all;
}

void CudaGemm::Library::restore(std::span<const GemmChoice> choices) {
  std::string other;  // library and GPU of a choice that is not valid here
  for (const GemmChoice& choice : choices) {
    const std::string_view text = choice.algorithm;
    const size_t end = std::min(text.rfind(kBeforeWords), text.size());
    if (text.substr(0, end) == identity_)
      chosen_[choice.key] =
          algorithm_of(text.substr(std::min(end + kBeforeWords.size(), text.size())), choice);
    else
      other = text.substr(0, end);
  }
  plans_.clear();
  if (!other.empty())
    spdlog::warn(
        "GEMMs: the stored algorithms are for {}, but this is {}. Algorithms are chosen again: "
        "results may differ in their last bits from those of the stored run",
        other, identity_);
}

// --- running -------------------------------------------------------------------------------------

cublasStatus_t CudaGemm::Library::enqueue(const GemmKey& key, const Plan& plan, const Operands& x,
                                          const Scratch& workspace) {
  const float alpha = 1.0f, beta = key.accumulate == Accumulate::kYes ? 1.0f : 0.0f;
  const Descriptors& p = plan.descriptors;
  return cublasLtMatmul(handle_.get(), p.description.get(), &alpha, x.b, p.first.get(), x.a,
                        p.second.get(), &beta, x.d, p.result.get(), x.d, p.result.get(),
                        &plan.algorithm, workspace.floats(), size_t{kWorkspaceBytes},
                        options_.stream);
}

void CudaGemm::Library::run(const GemmCall& call, const Scratch& workspace) {
  const GemmKey key = GemmKey::of(call);
  const Plan& plan = plan_for(key);
  if (key.fp8()) {
    // The library reads the pointers when the GEMM is enqueued, the scales when it runs.
    set_attribute(plan.descriptors.description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                  call.scale_inv_b);
    set_attribute(plan.descriptors.description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                  call.scale_inv_a);
  }
  const cublasStatus_t status =
      enqueue(key, plan, {call.a.data, call.b.data, call.d.data}, workspace);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(fmt::format("cublasLtMatmul of {}", key.name()), answer_of(status),
                    std::source_location::current());
}

namespace {

// k = 0: a sum without terms.
void run_empty(const GemmCall& call, cudaStream_t stream) {
  if (call.accumulate == Accumulate::kYes) return;
  const bool whole = call.d.contiguous();
  const int64_t pieces = whole ? 1 : call.d.rows, size = size_of(call.d.dtype);
  const int64_t bytes = (whole ? call.d.elements() : call.d.cols) * size;
  for (int64_t i = 0; i < pieces; ++i)
    check_cuda(cudaMemsetAsync(call.d.data + i * call.d.stride * size, 0,
                               static_cast<size_t>(bytes), stream),
               "cudaMemsetAsync");
}

}  // namespace

CudaGemm::CudaGemm(CudaGemmOptions options) : options_(std::move(options)) {}
CudaGemm::~CudaGemm() = default;

CudaGemm::Library& CudaGemm::library() {
  if (library_ == nullptr) library_ = std::make_unique<Library>(options_);
  return *library_;
}

void CudaGemm::reserve(Allocator& allocator, std::span<const GemmCall> calls) {
  for (const GemmCall& call : calls) {
    check_shapes(call);
    check_supported(GemmKey::of(call));
  }
  if (!calls.empty()) workspace_.reserve(allocator, kWorkspaceBytes);
  if (allocator.plans()) return;
  for (const GemmCall& call : calls)
    if (call.d.elements() > 0 && call.k() > 0) library().prepare(GemmKey::of(call), workspace_);
}

void CudaGemm::run(const GemmCall& call) {
  check_shapes(call);
  check((call.scale_inv_a == nullptr && call.scale_inv_b == nullptr) || is_fp8(call.a.dtype),
        "GEMM of {} and {} with scales, which only FP8 operands have", name_of(call.a.dtype),
        name_of(call.b.dtype));
  for (const float* const scale : {call.scale_inv_a, call.scale_inv_b})
    check(reinterpret_cast<uintptr_t>(scale) % kScaleAlignment == 0,
          "a scale of a GEMM on a GPU is not aligned to {} bytes", kScaleAlignment);
  if (call.d.elements() == 0) return;
  check(workspace_.bytes() >= kWorkspaceBytes, "GEMM on a GPU without a reserved workspace");
  if (call.k() == 0) return run_empty(call, options_.stream);
  library().run(call, workspace_);
}

std::vector<GemmChoice> CudaGemm::choices() const {
  return library_ ? library_->choices() : std::vector<GemmChoice>{};
}
void CudaGemm::restore(std::span<const GemmChoice> choices) { library().restore(choices); }
int64_t CudaGemm::plans() const { return library_ ? library_->plans() : 0; }

}  // namespace mpt
