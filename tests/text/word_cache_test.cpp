// A word cache filled and emptied by several threads: a lookup gives the right ids or none.
#include "text/corpus/word_cache.h"

#include <array>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace mpt {
namespace {

std::string text_of(int word) {
  return fmt::format("{}{}", std::string(size_t(word % 9), 'w'), word);
}
std::vector<int32_t> ids_of(int word) { return std::vector<int32_t>(size_t(word % 5), word); }

// Returns the ids that a cache appends for the word; nullopt if it does not know it.
template <class Cache>
std::optional<std::vector<int32_t>> found(Cache& cache, const std::string& word) {
  std::vector<int32_t> ids{-7};
  if (!cache.append(HashedWord(word), ids)) {
    EXPECT_EQ(ids.size(), 1U);
    return std::nullopt;
  }
  EXPECT_EQ(ids.front(), -7);
  return std::vector<int32_t>(ids.begin() + 1, ids.end());
}

TEST(WordCache, KnowsWhatWasInserted) {
  WordCache words;
  EXPECT_FALSE(found(words, "word"));
  words.insert(HashedWord("word"), std::vector{3, 4, 5});
  EXPECT_FALSE(found(words, "wor"));
  EXPECT_EQ(found(words, "word"), (std::vector{3, 4, 5}));
}

TEST(WordTable, KeepsTheFirstIdsOfEveryWordUntilItIsCleared) {
  constexpr int kWords = 20'000;
  WordTable words;
  for (int again = 0; again < 2; ++again) {
    for (int word = 0; word < kWords; ++word) {
      EXPECT_FALSE(found(words, text_of(word))) << word;
      words.insert(HashedWord(text_of(word)), ids_of(word));
      words.insert(HashedWord(text_of(word)), std::vector{-1});
    }
    EXPECT_EQ(words.size(), size_t{kWords});
    for (int word = 0; word < kWords; ++word)
      EXPECT_EQ(found(words, text_of(word)), ids_of(word)) << word;
    words.clear();
    EXPECT_EQ(words.size(), 0U);
  }
}

TEST(WordTable, TellsWordsOfTheSameHashApart) {
  HashedWord one("one"), two("two"), empty("");
  one.hash = two.hash = empty.hash = 7;
  WordTable words;
  std::vector<int32_t> ids;
  words.insert(one, std::vector{1});
  EXPECT_FALSE(words.append(two, ids));
  EXPECT_FALSE(words.append(empty, ids));
  words.insert(empty, std::vector{3});
  words.insert(two, std::vector{2});
  EXPECT_TRUE(words.append(two, ids) && words.append(one, ids) && words.append(empty, ids));
  EXPECT_EQ(ids, (std::vector{2, 1, 3}));
}

TEST(WordTable, LeavesOutWhatIsTooLongForIt) {
  const std::string longest(65535, 'a'), longer(65536, 'a');
  WordTable words;
  words.insert(HashedWord(longer), std::vector{1});
  words.insert(HashedWord("a"), std::vector<int32_t>(65536));
  EXPECT_EQ(words.size(), 0U);
  words.insert(HashedWord(longest), std::vector<int32_t>(65535, 5));
  EXPECT_EQ(found(words, longest), std::vector<int32_t>(65535, 5));
}

TEST(WordCache, OfNoWordsKeepsNone) {
  WordCache words(0);
  words.insert(HashedWord("word"), std::vector{3});
  EXPECT_FALSE(found(words, "word"));
}

// 20 000 words in a cache of 640, so that some are always evicted.
TEST(WordCache, GivesThreadsTheIdsOfTheWordOrNone) {
  constexpr int kThreads = 4, kWords = 20'000;
  WordCache words(640);
  std::array<int, kThreads> known{}, wrong{};
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kWords; ++i) {
          const int word = i - i % 7;  // every word several times
          const std::string text = fmt::format("w{}", word);
          const auto ids = found(words, text);
          known[thread] += ids.has_value();
          wrong[thread] += ids && *ids != ids_of(word);
          if (!ids) words.insert(HashedWord(text), ids_of(word));
        }
      });
  }
  for (size_t thread = 0; thread < kThreads; ++thread) {
    EXPECT_GT(known[thread], kWords / 2);
    EXPECT_EQ(wrong[thread], 0);
  }
}

TEST(RecentWords, AnotherWordTakesThePlaceAndNotTheName) {
  constexpr int kWords = 20'000;
  RecentWords recent;
  for (int word = 0; word < kWords; ++word) {
    const std::string text = fmt::format("w{}", word);
    EXPECT_FALSE(found(recent, text));
    recent.insert(HashedWord(text), ids_of(word));
    EXPECT_EQ(found(recent, text), ids_of(word));
  }
  int kept = 0;
  for (int word = 0; word < kWords; ++word) {
    const auto ids = found(recent, fmt::format("w{}", word));
    EXPECT_TRUE(!ids || *ids == ids_of(word)) << word;
    kept += ids.has_value();
  }
  EXPECT_GT(kept, 1'000);
  EXPECT_LT(kept, kWords);
}

TEST(RecentWords, DoNotHoldLongWordsNorManyIds) {
  RecentWords recent;
  EXPECT_FALSE(found(recent, ""));
  for (const size_t bytes : {1, 29, 30, 31, 64})
    for (const size_t count : {0, 1, 8, 9}) {
      const std::string word = std::string(bytes - 1, 'a') + char('0' + count);
      const std::vector<int32_t> ids(count, 5);
      recent.insert(HashedWord(word), ids);
      const bool fits = bytes <= 30 && count <= 8;
      EXPECT_EQ(found(recent, word), fits ? std::optional(ids) : std::nullopt) << word;
    }
}

}  // namespace
}  // namespace mpt
