#include "text/subword/bpe.h"

#include <algorithm>

#include "core/check.h"
#include "text/byte_level.h"

namespace mpt {
namespace {

// A symbol of the word being merged, linked to its neighbours. Positions are those before any
// merge.
struct Symbol {
  int32_t id;  // kGone: merged into one to its left
  int32_t previous, next;
};
constexpr int32_t kGone = -1, kNoNeighbour = -1;

// A pair that can be merged; the smallest key goes first.
struct Candidate {
  uint64_t key;  // rank, then position
  int32_t joined;

  bool operator<(const Candidate& other) const { return key > other.key; }  // for a heap
};

// Merges the ids from `begin` on. Kept per thread, so that it rarely allocates.
class Joining {
 public:
  void run(const Merges& merges, std::vector<int32_t>& ids, size_t begin) {
    read(ids, begin);
    for (int32_t i = 0; i + 1 < std::ssize(symbols_); ++i) consider(merges, i, i + 1, Push::kLater);
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate top = heap_.back();
      heap_.pop_back();
      join(merges, top);
    }
    write(ids, begin);
  }

 private:
  enum class Push : uint8_t { kNow, kLater };

  void read(const std::vector<int32_t>& ids, size_t begin) {
    const auto count = int32_t(ids.size() - begin);
    symbols_.clear();
    heap_.clear();
    for (int32_t i = 0; i < count; ++i)
      symbols_.push_back({ids[begin + size_t(i)], i - 1, i + 1 < count ? i + 1 : kNoNeighbour});
  }

  void consider(const Merges& merges, int32_t left, int32_t right, Push push) {
    Merges::Merge merge;
    if (!merges.find(symbols_[size_t(left)].id, symbols_[size_t(right)].id, merge)) return;
    heap_.push_back({uint64_t{merge.rank} << 32 | uint32_t(left), merge.joined});
    if (push == Push::kNow) std::push_heap(heap_.begin(), heap_.end());
  }

  // Candidates stay in the heap when a neighbour changes, so they are looked up again. The test is
  // that the pair still becomes the same piece, as in the library.
  void join(const Merges& merges, const Candidate& top) {
    const auto at = int32_t(uint32_t(top.key));
    Symbol& left = symbols_[size_t(at)];
    if (left.id == kGone || left.next == kNoNeighbour) return;
    Symbol& right = symbols_[size_t(left.next)];
    Merges::Merge merge;
    if (!merges.find(left.id, right.id, merge) || merge.joined != top.joined) return;
    left.id = top.joined;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kNoNeighbour) symbols_[size_t(left.next)].previous = at;
    if (left.previous != kNoNeighbour) consider(merges, left.previous, at, Push::kNow);
    if (left.next != kNoNeighbour) consider(merges, at, left.next, Push::kNow);
  }

  void write(std::vector<int32_t>& ids, size_t begin) const {
    ids.resize(begin);
    for (const Symbol& symbol : symbols_)
      if (symbol.id != kGone) ids.push_back(symbol.id);
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, Merges merges, const BpeOptions& options)
    : options_(options), merges_(std::move(merges)) {
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string* const text = vocabulary.text_of(id);
    if (text == nullptr) continue;
    if (options.symbols == Symbols::kCharacters)
      ids_.emplace(*text, int32_t(id));
    else if (auto bytes = bytes_of_byte_level(*text))
      ids_.emplace(std::move(*bytes), int32_t(id));
  }
  for (size_t byte = 0; byte < 256; ++byte)
    fallback_[byte] = vocabulary.id_of(fmt::format("<0x{:02X}>", byte));
  all_bytes_known_ = options.symbols == Symbols::kBytes;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = char(byte);
    bytes_[byte] = spelling_of({&c, 1});
    all_bytes_known_ = all_bytes_known_ && bytes_[byte].in_vocabulary;
  }
}

int32_t Bpe::id_of(std::string_view symbol) const {
  const auto entry = ids_.find(symbol);
  return entry == ids_.end() ? -1 : entry->second;
}

Bpe::Spelling Bpe::spelling_of(std::string_view symbol) const {
  if (const int32_t id = id_of(symbol); id >= 0) return {{id}, true};
  Spelling spelling;
  if (!options_.byte_fallback) return spelling;
  const bool as_bytes = options_.symbols == Symbols::kBytes;
  for (const char byte : as_bytes ? byte_level_text(symbol) : std::string(symbol)) {
    const int32_t id = fallback_[static_cast<unsigned char>(byte)];
    if (id < 0) return {};
    spelling.ids.push_back(id);
  }
  return spelling;
}

// An unknown piece is held back until the next known one, as in the library: byte pieces may
// overtake it.
void Bpe::append_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  if (all_bytes_known_) {
    for (const char byte : word) ids.push_back(bytes_[static_cast<unsigned char>(byte)].ids[0]);
    return;
  }
  const bool by_byte = options_.symbols == Symbols::kBytes;
  bool waiting = false;
  for (size_t at = 0; at < word.size();) {
    const size_t bytes = by_byte ? 1 : character_bytes(word[at]);
    const Spelling looked_up = bytes > 1 ? spelling_of(word.substr(at, bytes)) : Spelling{};
    const Spelling& spelling = bytes > 1 ? looked_up : bytes_[static_cast<unsigned char>(word[at])];
    at += bytes;
    if (spelling.in_vocabulary && waiting) {
      ids.push_back(options_.unknown);
      waiting = false;
    }
    ids.insert(ids.end(), spelling.ids.begin(), spelling.ids.end());
    if (!spelling.ids.empty() || !options_.has_unknown) continue;
    if (options_.unknown < 0)
      throw error("a character has no piece, and unk_token is not in the vocabulary");
    if (waiting && !options_.fuse_unknown) ids.push_back(options_.unknown);
    waiting = true;
  }
  if (waiting) ids.push_back(options_.unknown);
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.whole_words)
    if (const int32_t id = id_of(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  thread_local Joining joining;
  const size_t begin = ids.size();
  append_symbols(word, ids);
  if (ids.size() - begin > 1) joining.run(merges_, ids, begin);
}

}  // namespace mpt
