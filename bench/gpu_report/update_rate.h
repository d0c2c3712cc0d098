// Rate of the optimizer's update by itself, relative to the memory it must read and write.
#pragma once

#include "core/json/json_parse.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "precision/precision_config.h"
#include "samples.h"

namespace mpt {

struct UpdateCase {
  WeightFormat format = WeightFormat::kBF16;
  std::string rule = "m_plus_adam";
  WeightRounding weight_rounding = WeightRounding::kNearest;
  Rounding state_rounding = Rounding::kNearest;
  int64_t elements = int64_t{1} << 28;  // in matrices of equal size, at least
};

// BF16 states and gradients (FP32 with FP32 weights). `copy_bytes_per_second` is the rate that
// corresponds to 100 %.
Json measure_update(Device& device, const UpdateCase& update, const Effort& effort,
                    double copy_bytes_per_second);

}  // namespace mpt
