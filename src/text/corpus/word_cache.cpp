#include "text/corpus/word_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace mpt {
namespace {

// Initial sizes exceed what the C library caches per thread. Otherwise a smaller block, allocated
// by one thread and freed by another that had to grow the table, would be reused by the second
// thread for other data, next to memory that the first thread's allocator writes.
constexpr size_t kFirstPlaces = 256, kFirstNumbers = 1024;
constexpr size_t kMostNumbers = UINT32_MAX;  // in a block

// Header of a word: 16 bits each for its number of ids and of bytes.
constexpr size_t kMostIds = 0xFFFF, kMostWordBytes = 0xFFFF;
size_t ids_of(int32_t header) { return static_cast<uint32_t>(header) & kMostIds; }
size_t piece_bytes(int32_t header) { return static_cast<uint32_t>(header) >> 16; }
int32_t header_of(size_t ids, size_t bytes) { return static_cast<int32_t>(bytes << 16 | ids); }

// Index of the first slot, probing from the hash's own, for which ends(place) holds.
template <class Places, class F>
size_t probe(const Places& places, size_t hash, const F& ends) {
  const size_t mask = places.size() - 1;
  size_t i = hash & mask;
  while (!ends(places[i])) i = (i + 1) & mask;
  return i;
}

}  // namespace

bool WordTable::is_at(const Place& place, const HashedWord& word) const {
  const int32_t* const at = block_.data() + place.begin;
  return place.hash == static_cast<uint32_t>(word.hash) && piece_bytes(*at) == word.text.size() &&
         std::memcmp(at + 1 + ids_of(*at), word.text.data(), word.text.size()) == 0;
}

size_t WordTable::index_of(const HashedWord& word) const {
  return probe(places_, word.hash, [&](const Place& p) { return p.is_free() || is_at(p, word); });
}

bool WordTable::append(const HashedWord& word, std::vector<int32_t>& ids) const {
  if (size_ == 0) return false;
  const Place place = places_[index_of(word)];
  if (place.is_free()) return false;
  const int32_t* const at = block_.data() + place.begin;
  ids.insert(ids.end(), at + 1, at + 1 + ids_of(*at));
  return true;
}

void WordTable::grow() {
  std::vector<Place> places(std::max(kFirstPlaces, 2 * places_.size()));
  for (const Place& place : places_)
    if (!place.is_free())
      places[probe(places, place.hash, [](const Place& p) { return p.is_free(); })] = place;
  places_ = std::move(places);
  if (block_.empty()) {
    block_.reserve(kFirstNumbers);
    block_.push_back(0);
  }
}

void WordTable::insert(const HashedWord& word, std::span<const int32_t> ids) {
  const size_t bytes = word.text.size(), numbers = 1 + ids.size() + (bytes + 3) / 4;
  if (bytes > kMostWordBytes || ids.size() > kMostIds || block_.size() + numbers > kMostNumbers)
    return;
  if (2 * (size_ + 1) > places_.size()) grow();
  Place& place = places_[index_of(word)];
  if (!place.is_free()) return;
  place = {static_cast<uint32_t>(word.hash), static_cast<uint32_t>(block_.size())};
  block_.resize(block_.size() + numbers);
  int32_t* const at = block_.data() + place.begin;
  *at = header_of(ids.size(), bytes);
  std::copy(ids.begin(), ids.end(), at + 1);
  word.text.copy(reinterpret_cast<char*>(at + 1 + ids.size()), bytes);
  ++size_;
}

void WordTable::clear() {
  size_ = 0;
  std::fill(places_.begin(), places_.end(), Place{});
  block_.resize(1);
}

WordCache::WordCache(size_t max_words)
    : max_words_of_stripe_((max_words + kStripes - 1) / kStripes) {}

bool WordCache::append(const HashedWord& word, std::vector<int32_t>& ids) {
  Stripe& stripe = stripe_of(word);
  const std::lock_guard lock(stripe.mutex);
  return stripe.words.append(word, ids);
}

void WordCache::insert(const HashedWord& word, std::span<const int32_t> ids) {
  if (max_words_of_stripe_ == 0) return;
  Stripe& stripe = stripe_of(word);
  const std::lock_guard lock(stripe.mutex);
  if (stripe.words.size() >= max_words_of_stripe_) stripe.words.clear();
  stripe.words.insert(word, ids);
}

}  // namespace mpt
