// Weights of a Hugging Face directory: model.safetensors, or the shards listed by
// model.safetensors.index.json.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "model/llama_config.h"
#include "weights/weight_source.h"

namespace mpt {

// An index: the file of each tensor, within the directory. Throws Error naming `path` and the key.
using TensorFiles = std::map<std::string, std::string, std::less<>>;
TensorFiles tensor_files_of_index(std::string_view text, const std::string& path);

class HuggingFaceWeights : public WeightSource {
 public:
  // Reads the headers of all files. Throws one Error with the first problems of tensors: missing
  // ones, those that the model does not have, types other than F32, BF16 and F16, other shapes.
  // Buffers of rotary frequencies are skipped; a separate head, if embeddings are tied, must equal
  // them.
  HuggingFaceWeights(FileSystem& fs, std::string directory, const LlamaConfig& model,
                     Device& device);

  // bf16 if all weights are BF16, else fp32: the format that keeps them exactly.
  [[nodiscard]] WeightFormat format() const;
  [[nodiscard]] const std::vector<std::unique_ptr<SafetensorsReader>>& files() const {
    return files_;
  }
  // Throws Error naming the tensor and the row if a weight is not finite.
  void read(const ParamSpec& spec, int64_t first, const Tensor& target) override;
  bool copy(const ParamSpec&, const EncodedTensor&) override { return false; }

 private:
  struct Place {
    const SafetensorsReader* file = nullptr;
    const SafetensorsReader::Entry* entry = nullptr;
  };
  void open_indexed(FileSystem& fs, const std::string& index);
  void open_whole(FileSystem& fs);
  void add(const std::string& name, const SafetensorsReader& file,
           const SafetensorsReader::Entry& entry);
  const SafetensorsReader& open(FileSystem& fs, const std::string& name);
  void check_tensors(const LlamaConfig& model);
  void check_tied_head(const Place& head);
  // Elements [first, first + count) as FP32.
  const std::vector<float>& values_of(const Place& place, int64_t first, int64_t count);

  std::string directory_;
  Device& device_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Place, std::less<>> tensors_;
  std::vector<ParamSpec> specs_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

}  // namespace mpt
