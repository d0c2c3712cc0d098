#include "train/step/same_on_all_ranks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "config/run_config_json.h"
#include "core/io/code_file.h"
#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/json/json_parse.h"
#include "data/dataloader.h"
#include "device/device.h"

namespace mpt {
namespace {

// Returns the first rank whose text differs from rank 0's; size() if none.
int64_t first_other(const std::vector<std::string>& texts) {
  const auto other =
      std::ranges::find_if(texts, [&](const std::string& t) { return t != texts.front(); });
  return other - texts.begin();
}

void check_same(Communicator& ranks, const std::string& mine, std::string_view what) {
  const std::vector<std::string> texts = ranks.gather_texts(mine);
  const int64_t other = first_other(texts);
  if (other < ranks.size())
    throw error(
        "rank {} has a different {} from rank 0: hash {}, rank 0 has {}. All ranks need the same",
        other, what, texts[size_t(other)], texts.front());
}

void hash_data(const SequenceSource& data, Hasher& hasher) {
  constexpr int64_t kSamples = 64;
  const int64_t counts[] = {data.tokens(), data.sequences()};
  hasher.update(std::as_bytes(std::span(counts)));
  const int64_t samples = std::min(kSamples, data.sequences());
  for (int64_t i = 0; i < samples; ++i) {
    const uint64_t row[] = {read_batch(data, i * data.sequences() / samples, 1).hash};
    hasher.update(std::as_bytes(std::span(row)));
  }
}

std::string hash_of_data(const Mixture& data) {
  Hasher hasher;
  for (const Corpus& corpus : data.corpora()) hash_data(*corpus.rows, hasher);
  return hasher.hex();
}

std::string hash_of(const Tensor& tensor, Device& device) {
  std::vector<std::byte> bytes(size_t(tensor.elements() * size_of(tensor.dtype)));
  device.download(tensor, bytes.data());
  return hash_bytes(bytes);
}

}  // namespace

void check_same_start(Communicator& ranks, const RunConfig& config, const Mixture& training_data) {
  if (ranks.is_single()) return;
  check_same(ranks, hash_bytes(bytes_of(json_text(resolved_json(config)))), "configuration");
  check_same(ranks, hash_file(posix_file_system(), code_file()), "program");
  check_same(ranks, hash_of_data(training_data), "set of training data");
}

namespace {

void agree_on_sums_of_bf16(Communicator& ranks, Device& device) {
  std::string mine(name_of(Bf16Dot::kFma));
  for (const GemmChoice& choice : device.gemm().choices()) mine = choice.algorithm;
  const std::vector<std::string> texts = ranks.gather_texts(mine);
  const int64_t other = first_other(texts);
  if (other == ranks.size()) return;
  if (ranks.is_root())
    spdlog::warn(
        "dot products of BF16 numbers: rank {} would sum them by {}, rank 0 by {}; all ranks take "
        "fma",
        other, texts[size_t(other)], texts.front());
  device.gemm().restore({});
}

// [[key, algorithm], ...]
std::string text_of(const std::vector<GemmChoice>& choices) {
  nlohmann::json list = nlohmann::json::array();
  for (const GemmChoice& choice : choices) list.push_back({choice.key, choice.algorithm});
  return json_text(list);
}
std::vector<GemmChoice> choices_of(const std::string& text) {
  std::vector<GemmChoice> choices;
  for (const nlohmann::json& pair : nlohmann::json::parse(text))
    choices.push_back({pair.at(0), pair.at(1)});
  return choices;
}

// A checkpoint holds the choices of rank 0.
void take_choices_of_rank_0(Communicator& ranks, Device& device) {
  const std::string mine = ranks.is_root() ? text_of(device.gemm().choices()) : "";
  const std::vector<GemmChoice> choices = choices_of(ranks.gather_texts(mine).front());
  if (!ranks.is_root()) device.gemm().restore(choices);
}

}  // namespace

void agree_on_gemms(Communicator& ranks, Device& device) {
  if (ranks.is_single()) return;
  if (device.backend() == Backend::kCpu) return agree_on_sums_of_bf16(ranks, device);
  take_choices_of_rank_0(ranks, device);
}

void check_same_tensors(Communicator& ranks, const std::vector<NamedTensor>& tensors,
                        Device& device) {
  if (ranks.is_single()) return;
  std::string mine;
  for (const NamedTensor& named : tensors) mine += hash_of(named.tensor, device);
  const std::vector<std::string> texts = ranks.gather_texts(mine);
  const int64_t other = first_other(texts);
  if (other == ranks.size()) return;
  const size_t width = mine.size() / tensors.size();
  size_t i = 0;
  while (texts[size_t(other)].compare(i * width, width, texts.front(), i * width, width) == 0) ++i;
  throw error(
      "'{}' differs between rank {} and rank 0: hash {}, rank 0 has {}. All ranks must hold the "
      "same weights",
      tensors[i].name, other, texts[size_t(other)].substr(i * width, width),
      texts.front().substr(i * width, width));
}

}  // namespace mpt
