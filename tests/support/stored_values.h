// Numbers in tensors of safetensors files.
#pragma once

#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/io/safetensors.h"

namespace mpt::test {

template <class T>
std::vector<T> stored_values(const SafetensorsReader& file, const SafetensorsReader::Entry& entry) {
  std::vector<T> values(size_t(entry.bytes()) / sizeof(T));
  file.read(entry, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// Values of a tensor in FP32 or BF16.
inline std::vector<float> file_values(const SafetensorsReader& file, const std::string& name) {
  const auto& entry = file.at(name);
  if (entry.type == StoredType::kF32) return stored_values<float>(file, entry);
  check(entry.type == StoredType::kBF16, "{} is neither FP32 nor BF16", name);
  std::vector<float> values;
  for (const bf16 x : stored_values<bf16>(file, entry)) values.push_back(to_float(x));
  return values;
}

}  // namespace mpt::test
