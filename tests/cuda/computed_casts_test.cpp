// Inputs of linear layers computed during their cast to FP8, by tuned and generic kernels:
// bit-identical to casts of the stored input.
#include "model/computed_casts.h"

#include "cuda/device_fixture.h"
#include "model/llama_ops.h"

namespace mpt::test {
namespace {

class ComputedCastsOnGpu : public CudaDeviceTest,
                           public testing::WithParamInterface<ComputedCase> {};

TEST_P(ComputedCastsOnGpu, AreThoseOfTheStoredInput) {
  expect_equal_casts(*device_, *make_ops<LlamaOps>(device_->stream()), GetParam());
}

TEST_P(ComputedCastsOnGpu, AreThoseOfTheStoredInputUntuned) {
  expect_equal_casts(*device_,
                     *make_ops<LlamaOps>(device_->stream(), {.kernels = LlamaKernels::kGeneric}),
                     GetParam());
}

#ifdef MPT_FAKE_CUDA
TEST_P(ComputedCastsOnGpu, InWhateverOrderBlocksAndThreadsCome) {
  fake_cuda::set_order(fake_cuda::Order::kBackward);
  expect_equal_casts(*device_, *make_ops<LlamaOps>(device_->stream()), GetParam());
}
#endif

INSTANTIATE_TEST_SUITE_P(Shapes, ComputedCastsOnGpu, testing::ValuesIn(computed_cases()),
                         computed_case_name);

}  // namespace
}  // namespace mpt::test
