// Cosines and sines of the rotary embedding, computed once on the host in FP64.
//
// With rope_scaling, angles of position t are t times rotary_frequency():
//   linear   f / factor
//   llama3   f for wavelengths 2 pi / f below original / high_freq_factor, f / factor for those
//            above original / low_freq_factor; between them (1 - s) f / factor + s f with
//            s = (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
// where original is original_max_position_embeddings, as in Hugging Face's LLaMA.
#pragma once

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

// Radians per position of pair i of a head.
double rotary_frequency(const LlamaConfig& config, int64_t i);

struct RopeTable {
  Tensor cosine, sine;  // [positions, D/2] fp32

  RopeTable() = default;
  // With a planning allocator it only plans, and the tensors have no data.
  RopeTable(const LlamaConfig& config, int64_t positions, Device& device, Allocator& allocator);
};

}  // namespace mpt
