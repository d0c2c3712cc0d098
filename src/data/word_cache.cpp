#include "data/word_cache.h"

namespace mpt {

WordCache::WordCache(size_t max_words) : max_words_of_stripe_((max_words + kStripes - 1) / kStripes) {}

bool WordCache::append(const HashedWord& word, std::vector<int32_t>& ids) {
  Stripe& stripe = stripe_of(word);
  const std::lock_guard lock(stripe.mutex);
  const auto known = stripe.words.find(word);
  if (known == stripe.words.end()) return false;
  ids.insert(ids.end(), known->second.begin(), known->second.end());
  return true;
}

void WordCache::insert(const HashedWord& word, std::span<const int32_t> ids) {
  if (max_words_of_stripe_ == 0) return;
  Stripe& stripe = stripe_of(word);
  const std::lock_guard lock(stripe.mutex);
  if (stripe.words.size() >= max_words_of_stripe_) stripe.words.clear();
  stripe.words.emplace(word.text, std::vector<int32_t>(ids.begin(), ids.end()));
}

}  // namespace mpt
