#include "interchange/hugging_face_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"
#include "core/json/config_reader.h"
#include "core/json/json_parse.h"
#include "model/parameters.h"

namespace mpt {
namespace {

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWeightMap = "weight_map";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kRotaryFrequencies = "rotary_emb.inv_freq";

std::vector<int64_t> shape_of(const ParamSpec& spec) {
  return spec.rank() == 1 ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols};
}

bool is_readable(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kBF16 || type == StoredType::kF16;
}

template <class Code, class Decode>
void decode_all(const std::vector<std::byte>& bytes, std::vector<float>& values,
                const Decode& decode) {
  for (size_t i = 0; i < values.size(); ++i) {
    Code code{};
    std::memcpy(&code, bytes.data() + i * sizeof(Code), sizeof(Code));
    values[i] = decode(code);
  }
}

// Decodes F32, BF16 or F16; exact.
void decode_stored(StoredType type, const std::vector<std::byte>& bytes,
                   std::vector<float>& values) {
  if (type == StoredType::kF32)
    decode_all<float>(bytes, values, [](float x) { return x; });
  else if (type == StoredType::kBF16)
    decode_all<bf16>(bytes, values, [](bf16 x) { return to_float(x); });
  else
    decode_all<uint16_t>(bytes, values, [](uint16_t x) { return fp16_decode(x); });
}

// Returns the weights file of a directory without safetensors: "pytorch_model.bin"; "" if none.
std::string pickle_in(FileSystem& fs, const std::string& directory) {
  constexpr std::array<std::string_view, 4> kEndings{".bin", ".pt", ".pth", ".ckpt"};
  for (const std::string& name : fs.list_directory(directory))
    for (const std::string_view ending : kEndings)
      if (name.ends_with(ending)) return name;
  return "";
}

Error nothing_to_read(FileSystem& fs, const std::string& directory) {
  const std::string pickle = pickle_in(fs, directory);
  if (pickle.empty()) return error("{}: has neither {} nor {}", directory, kWhole, kIndex);
  return error(
      "{}: its weights are in {}, a pickle, which can run code and is not read. Convert them to "
      "safetensors with the program they are from (save_pretrained of transformers writes {})",
      directory, pickle, kWhole);
}

void check_file_name(const std::string& name, const std::string& tensor, const std::string& path) {
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos)
    throw error("{}: {}.{}: '{}' is not the name of a file next to it", path, kWeightMap, tensor,
                name);
}

}  // namespace

TensorFiles tensor_files_of_index(std::string_view text, const std::string& path) {
  const ParsedJson parsed = parse_json(text, path);
  const bool has_map = parsed.value.is_object() && parsed.value.contains(kWeightMap) &&
                       parsed.value.at(kWeightMap).is_object();
  if (!has_map) throw error("{}: has no object {}: tensor -> file", path, kWeightMap);
  TensorFiles files;
  for (const auto& item : parsed.value.at(kWeightMap).items()) {
    if (!item.value().is_string())
      throw error("{}: {}.{}: expected the name of a file, found {}", path, kWeightMap, item.key(),
                  describe(item.value()));
    const auto name = item.value().get<std::string>();
    check_file_name(name, item.key(), path);
    files.emplace(item.key(), name);
  }
  if (files.empty()) throw error("{}: {} lists no tensor", path, kWeightMap);
  return files;
}

HuggingFaceWeights::HuggingFaceWeights(FileSystem& fs, std::string directory,
                                       const LlamaConfig& model, Device& device)
    : directory_(std::move(directory)), device_(device), specs_(llama_parameters(model)) {
  const std::string index = in_directory(directory_, kIndex);
  if (has_optional_file(fs, index))
    open_indexed(fs, index);
  else if (has_optional_file(fs, in_directory(directory_, kWhole)))
    open_whole(fs);
  else
    throw nothing_to_read(fs, directory_);
  check_tensors(model);
}

const SafetensorsReader& HuggingFaceWeights::open(FileSystem& fs, const std::string& name) {
  const std::string path = in_directory(directory_, name);
  if (!fs.exists(path)) throw error("{}: no such file, but {} lists it", path, kIndex);
  files_.push_back(std::make_unique<SafetensorsReader>(fs, path));
  return *files_.back();
}

void HuggingFaceWeights::open_whole(FileSystem& fs) {
  const SafetensorsReader& file = open(fs, kWhole);
  for (const SafetensorsReader::Entry& entry : file.tensors()) add(entry.name, file, entry);
}

void HuggingFaceWeights::open_indexed(FileSystem& fs, const std::string& index) {
  const TensorFiles listed = tensor_files_of_index(fs.read_file(index, kMaxJsonBytes), index);
  std::map<std::string, const SafetensorsReader*> opened;
  for (const auto& [tensor, name] : listed)
    if (const auto [at, is_new] = opened.try_emplace(name, nullptr); is_new)
      at->second = &open(fs, name);
  if (!opened.contains(kWhole) && has_optional_file(fs, in_directory(directory_, kWhole)))
    throw error("{}: has both {} and {}, which does not list it; remove one of them", directory_,
                kWhole, kIndex);
  for (const auto& [name, file] : opened)
    for (const SafetensorsReader::Entry& entry : file->tensors()) {
      const auto found = listed.find(entry.name);
      if (found == listed.end() || found->second != name)
        throw error("{}: has tensor '{}', which {} says is {}", file->path(), entry.name, kIndex,
                    found == listed.end() ? "nowhere" : "in " + found->second);
      add(entry.name, *file, entry);
    }
  for (const auto& [tensor, name] : listed)
    if (!tensors_.contains(tensor))
      throw error("{}: has no tensor '{}', but {} says so", opened.at(name)->path(), tensor,
                  kIndex);
}

void HuggingFaceWeights::add(const std::string& name, const SafetensorsReader& file,
                             const SafetensorsReader::Entry& entry) {
  tensors_[name] = {.file = &file, .entry = &entry};
}

void HuggingFaceWeights::check_tensors(const LlamaConfig& model) {
  Problems problems;
  std::map<std::string, Place, std::less<>> others = tensors_;
  for (const ParamSpec& spec : specs_) {
    const StoredTensorInfo wanted{spec.name, StoredType::kBF16, shape_of(spec)};
    const auto found = others.find(spec.name);
    if (found == others.end()) {
      problems.push_back(fmt::format("{}: has no tensor '{}'; expected {}, or F32 or F16",
                                     directory_, spec.name, wanted.description()));
      continue;
    }
    const auto& [file, entry] = found->second;
    if (!is_readable(entry->type) || entry->shape != wanted.shape)
      problems.push_back(fmt::format("{}: tensor '{}' is {}; expected {}, or F32 or F16",
                                     file->path(), spec.name, entry->description(),
                                     wanted.description()));
    others.erase(found);
  }
  const auto head = others.find(kHead);
  const Place tied = model.tie_word_embeddings && head != others.end() ? head->second : Place{};
  if (tied.file != nullptr) others.erase(head);
  for (const auto& [name, place] : others)
    if (!name.ends_with(kRotaryFrequencies))
      problems.push_back(
          fmt::format("{}: tensor '{}' ({}) is none of the model that config.json "
                      "describes",
                      place.file->path(), name, place.entry->description()));
  throw_problems(problems);
  if (tied.file != nullptr) check_tied_head(tied);
}

void HuggingFaceWeights::check_tied_head(const Place& head) {
  const ParamSpec& spec = specs_[size_t(embedding_index())];
  const Place& embedding = tensors_.at(spec.name);
  if (!is_readable(head.entry->type) || head.entry->shape != embedding.entry->shape)
    throw error("{}: tensor '{}' is {}, but tied to '{}', which is {}", head.file->path(), kHead,
                head.entry->description(), spec.name, embedding.entry->description());
  for (int64_t row = 0; row < spec.rows; ++row) {
    const std::vector<float> of_embedding = values_of(embedding, row * spec.cols, spec.cols);
    if (values_of(head, row * spec.cols, spec.cols) != of_embedding)
      throw error(
          "{}: tensor '{}' differs from '{}' in row {}, but tie_word_embeddings of config.json is "
          "true",
          head.file->path(), kHead, spec.name, row);
  }
}

WeightFormat HuggingFaceWeights::format() const {
  const bool bf16 = std::ranges::all_of(specs_, [&](const ParamSpec& spec) {
    return tensors_.at(spec.name).entry->type == StoredType::kBF16;
  });
  return bf16 ? WeightFormat::kBF16 : WeightFormat::kF32;
}

const std::vector<float>& HuggingFaceWeights::values_of(const Place& place, int64_t first,
                                                        int64_t count) {
  const int64_t item = size_of(place.entry->type);
  bytes_.resize(static_cast<size_t>(count * item));
  values_.resize(static_cast<size_t>(count));
  place.file->read(*place.entry, first * item, bytes_);
  decode_stored(place.entry->type, bytes_, values_);
  return values_;
}

void HuggingFaceWeights::read(const ParamSpec& spec, int64_t first, const Tensor& target) {
  const Place& place = tensors_.at(spec.name);
  const std::vector<float>& values = values_of(place, first * spec.cols, target.elements());
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad != values.end())
    throw error("{}: tensor '{}' is {} in row {}; expected finite weights", place.file->path(),
                spec.name, *bad, first + (bad - values.begin()) / spec.cols);
  device_.upload(reinterpret_cast<const std::byte*>(values.data()), target);
}

}  // namespace mpt
