// Operations that cast their results, by tuned and generic kernels: bit-identical to the operation
// followed by the cast.
#include "model/casts_ahead.h"

#include "cuda/device_fixture.h"
#include "model/llama_ops.h"

namespace mpt::test {
namespace {

class CastsAheadOnGpu : public CudaDeviceTest, public testing::WithParamInterface<CastAheadCase> {};

TEST_P(CastsAheadOnGpu, AreThoseOfCastsAfterwards) {
  expect_equal_ahead(*device_, *make_ops<LlamaOps>(device_->stream()), GetParam());
}

TEST_P(CastsAheadOnGpu, AreThoseOfCastsAfterwardsUntuned) {
  expect_equal_ahead(*device_,
                     *make_ops<LlamaOps>(device_->stream(), {.kernels = LlamaKernels::kGeneric}),
                     GetParam());
}

#ifdef MPT_FAKE_CUDA
TEST_P(CastsAheadOnGpu, InWhateverOrderBlocksAndThreadsCome) {
  fake_cuda::set_order(fake_cuda::Order::kBackward);
  expect_equal_ahead(*device_, *make_ops<LlamaOps>(device_->stream()), GetParam());
}
#endif

INSTANTIATE_TEST_SUITE_P(Shapes, CastsAheadOnGpu, testing::ValuesIn(cast_ahead_cases()),
                         cast_ahead_case_name);

}  // namespace
}  // namespace mpt::test
