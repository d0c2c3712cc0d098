#include "config/run_device.h"

#include <memory>
#include <string>

#include "core/check.h"
#include "device/backends.h"

namespace mpt {

Backend backend_of(const DeviceConfig& config) {
  if (config.type == DeviceType::kAuto) return available_backend();
  return config.type == DeviceType::kCuda ? Backend::kCuda : Backend::kCpu;
}

void require_compute(const RunConfig& config, Backend backend) {
  if (backend == Backend::kCuda) return;
  for (const RunPhase& phase : run_phases(config))
    if (phase.config.precision.compute == ComputeFormat::kTf32)
      throw error(
          "precision.compute: tf32 is not available on the CPU, which device.type = {} selects "
          "here and which computes in fp32; set precision.compute to fp32, or train on a GPU",
          name_of(config.device.type));
}

namespace {

DeviceOptions device_options(const DeviceConfig& config) {
  return {.backend = backend_of(config),
          .threads = int(config.threads),
          .bf16_dot = config.bf16_dot,
          .cuda = {.index = int(config.gpu),
                   .graphs = config.cuda_graph ? CudaGraphs::kOn : CudaGraphs::kOff,
                   .tuning = config.autotune_gemms ? GemmTuning::kOn : GemmTuning::kOff,
                   .attention = config.cuda_attention,
                   .deterministic_attention = config.deterministic_attention
                                                  ? DeterministicAttention::kOn
                                                  : DeterministicAttention::kOff}};
}

}  // namespace

std::unique_ptr<Device> make_device(const DeviceConfig& config) {
  return make_device(device_options(config));
}
std::string why_unavailable(const DeviceConfig& config) {
  return why_unavailable(device_options(config));
}
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config) {
  const DeviceOptions options = device_options(config);
  return why_unavailable(options).empty() ? make_device(options) : make_planning_device(options);
}
std::unique_ptr<Device> make_planning_gpu(const DeviceConfig& config) {
  if (!has_cuda()) return nullptr;
  CudaDeviceOptions options = device_options(config).cuda;
  if (options.attention == CudaAttention::kCudnn) options.attention = CudaAttention::kAuto;
  return make_cuda_planning_device(options);
}

// A CPU has ample memory and casts slowly.
WeightCodes weight_codes_of(const DeviceConfig& config, Backend backend) {
  switch (config.fp8_weight_codes) {
    case Fp8WeightCodes::kAllLayers:
      return WeightCodes::kAllLayers;
    case Fp8WeightCodes::kOneLayer:
      return WeightCodes::kOneLayer;
    case Fp8WeightCodes::kAuto:
      break;
  }
  return backend == Backend::kCuda ? WeightCodes::kOneLayer : WeightCodes::kAllLayers;
}

}  // namespace mpt
