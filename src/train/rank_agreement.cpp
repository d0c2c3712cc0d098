#include "train/rank_agreement.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/file_system.h"
#include "core/hash.h"

namespace mpt {

namespace {

// The first rank that says something else than rank 0; size() if none does.
int64_t first_other(const std::vector<std::string>& texts) {
  const auto other = std::ranges::find_if(texts, [&](const std::string& t) { return t != texts.front(); });
  return other - texts.begin();
}

void check_same(Communicator& ranks, const std::string& mine, std::string_view what) {
  const std::vector<std::string> texts = ranks.gather_texts(mine);
  const int64_t other = first_other(texts);
  if (other < ranks.size())
    throw error("rank {} has another {} than rank 0: hash {}, there {}. All ranks need the same", other, what,
                texts[size_t(other)], texts.front());
}

std::string hash_of_data(const SequenceSource& data) {
  constexpr int64_t kSamples = 64;
  std::vector<int32_t> tokens(size_t(data.seq_len())), targets(tokens.size());
  Hasher hasher;
  const int64_t counts[] = {data.tokens(), data.sequences()};
  hasher.update(std::as_bytes(std::span(counts)));
  const int64_t samples = std::min(kSamples, data.sequences());
  for (int64_t i = 0; i < samples; ++i) {
    data.read(i * data.sequences() / samples, tokens, targets);
    hasher.update(std::as_bytes(std::span(tokens)));
  }
  return hasher.hex();
}

std::string hash_of(const Tensor& tensor, Device& device) {
  std::vector<std::byte> bytes(size_t(tensor.elements() * size_of(tensor.dtype)));
  device.download(tensor, bytes.data());
  return hash_bytes(bytes);
}

}  // namespace

void check_same_start(Communicator& ranks, const RunConfig& config, const SequenceSource& training_data) {
  if (ranks.alone()) return;
  check_same(ranks, hash_bytes(bytes_of(resolved_json(config).dump())), "configuration");
  check_same(ranks, hash_file(posix_file_system(), "/proc/self/exe"), "program");
  check_same(ranks, hash_of_data(training_data), "training data");
}

void check_same_tensors(Communicator& ranks, const std::vector<NamedTensor>& tensors, Device& device) {
  if (ranks.alone()) return;
  std::string mine;
  for (const NamedTensor& named : tensors) mine += hash_of(named.tensor, device);
  const std::vector<std::string> texts = ranks.gather_texts(mine);
  const int64_t other = first_other(texts);
  if (other == ranks.size()) return;
  const size_t width = mine.size() / tensors.size();
  size_t i = 0;
  while (texts[size_t(other)].compare(i * width, width, texts.front(), i * width, width) == 0) ++i;
  throw error(
      "'{}' is not the same on rank {} as on rank 0: hash {}, there {}. All ranks must hold the same weights",
      tensors[i].name, other, texts[size_t(other)].substr(i * width, width),
      texts.front().substr(i * width, width));
}

}  // namespace mpt
