#include "train/rank_group.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace mpt {
namespace {

void gather(const RankGroup& ranks, std::span<const std::byte> mine, std::span<std::byte> all) {
  check(ranks.size == 1 || ranks.gather != nullptr, "{} ranks without a way to gather", ranks.size);
  if (ranks.gather)
    ranks.gather(mine, all);
  else
    std::copy(mine.begin(), mine.end(), all.begin());
}

}  // namespace

std::vector<int64_t> gather_numbers(const RankGroup& ranks, int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(ranks.size));
  gather(ranks, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// First the lengths, then the texts, padded to the longest.
std::vector<std::string> gather_texts(const RankGroup& ranks, std::string_view mine) {
  const std::vector<int64_t> sizes = gather_numbers(ranks, std::ssize(mine));
  const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::string> texts(sizes.size());
  if (longest == 0) return texts;
  std::string padded(mine), all(longest * sizes.size(), '\0');
  padded.resize(longest);
  gather(ranks, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < texts.size(); ++rank)
    texts[rank] = all.substr(rank * longest, static_cast<size_t>(sizes[rank]));
  return texts;
}

void together(const RankGroup& ranks, const std::function<void()>& work) {
  if (ranks.size == 1) return work();
  std::string failure;
  try {
    work();
  } catch (const Error& caught) {
    failure = fmt::format("rank {}: {}", ranks.rank, caught.what());
  }
  for (const std::string& text : gather_texts(ranks, failure))
    if (!text.empty()) throw Error(text);
}

}  // namespace mpt
