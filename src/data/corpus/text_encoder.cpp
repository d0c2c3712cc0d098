#include "data/corpus/text_encoder.h"

#include <cstring>
#include <utility>

#include "data/sentencepiece/sentencepiece_model.h"

namespace mpt {
namespace {

// Initial sizes exceed what the C library caches per thread. A smaller piece, allocated by one
// thread and freed by another that had to grow the table, would be reused by the second thread for
// other data, next to memory that the first thread's allocator writes.
constexpr size_t kFirstPlaces = 256, kFirstNumbers = 1024;
constexpr size_t kMostNumbers = UINT32_MAX;  // of a block

// Header of a word: 16 bits each for its number of ids and of bytes.
constexpr size_t kMostIds = 0xFFFF, kMostWordBytes = 0xFFFF;
size_t ids_of(int32_t header) { return static_cast<uint32_t>(header) & kMostIds; }
size_t piece_bytes(int32_t header) { return static_cast<uint32_t>(header) >> 16; }
int32_t header_of(size_t ids, size_t bytes) { return static_cast<int32_t>(bytes << 16 | ids); }

// Index of the first place, probing from the hash's own, for which ends(place) holds.
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

namespace {

constexpr size_t kMaxCachedWordBytes = 64;

bool piece_allows(const Piece& piece) {
  if (piece.type == PieceType::kUserDefined) return false;
  if (piece.type != PieceType::kNormal && piece.type != PieceType::kUnused)
    return true;  // never merged
  std::string_view text = piece.text;
  while (text.starts_with(kSpaceSymbol)) text.remove_prefix(kSpaceSymbol.size());
  return text.find(kSpaceSymbol) == std::string_view::npos;
}

// Length of the white space at `at`; 0 if there is none. A space symbol in the text counts as a
// space.
size_t space_length(std::string_view text, size_t at) {
  if (text[at] == ' ') return 1;
  return text[at] == kSpaceSymbol[0] && text.substr(at).starts_with(kSpaceSymbol)
             ? kSpaceSymbol.size()
             : 0;
}

// End of the word at `begin` (leading white space, then the rest): the position of the next white
// space. A single space at the end of the text stays with the word before it, because it cannot be
// encoded alone.
size_t word_end(std::string_view text, size_t begin) {
  bool in_space = true;
  for (size_t at = begin; at < text.size();) {
    const size_t space = space_length(text, at);
    if (space > 0 && !in_space && at + space < text.size()) return at;
    in_space = space > 0;
    at += space > 0 ? space : 1;
  }
  return text.size();
}

}  // namespace

bool words_are_independent(std::string_view bytes) {
  const SentencePieceModel model = parse_sentencepiece_model(bytes);
  const bool trained_so =
      model.model == PieceModel::kBpe && !model.space_as_suffix && model.byte_fallback;
  const bool normalizes_so = !model.changes_characters && model.add_dummy_prefix &&
                             !model.remove_extra_whitespaces && model.escape_whitespaces;
  return trained_so && normalizes_so && std::ranges::all_of(model.pieces, piece_allows);
}

TextEncoder::TextEncoder(const Tokenizer& tokenizer, WordCache& words, SpecialTokens special)
    : tokenizer_(tokenizer),
      words_(words),
      special_(special),
      word_by_word_(tokenizer.subwords() != nullptr ||
                    words_are_independent(tokenizer.model_bytes())) {}

void TextEncoder::append_subwords(std::string_view text, std::vector<int32_t>& ids) {
  tokenizer_.subwords()->split(text, special_, pieces_);
  for (const TextPiece& piece : pieces_.list)
    if (piece.token >= 0)
      ids.push_back(piece.token);
    else
      append_word(piece.text, ids);
}

void TextEncoder::append(std::string_view text, std::vector<int32_t>& ids) {
  if (tokenizer_.subwords() != nullptr) return append_subwords(text, ids);
  if (!word_by_word_) {
    const std::vector<int32_t> whole = tokenizer_.encode(text);
    ids.insert(ids.end(), whole.begin(), whole.end());
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = word_end(text, begin);
    // The tokenizer prepends a space to any text; it stands for the word's own first one.
    const size_t own_space = begin == 0 ? 0 : space_length(text, begin);
    append_word(text.substr(begin + own_space, end - begin - own_space), ids);
    begin = end;
  }
}

void TextEncoder::append_word(std::string_view word, std::vector<int32_t>& ids) {
  const HashedWord hashed(word);
  if (recent_.append(hashed, ids)) return;
  const size_t begin = ids.size();
  if (!words_.append(hashed, ids)) append_new_word(hashed, ids);
  recent_.insert(hashed, std::span(ids).subspan(begin));
}

void TextEncoder::append_new_word(const HashedWord& word, std::vector<int32_t>& ids) {
  const size_t begin = ids.size();
  if (tokenizer_.subwords() != nullptr) {
    tokenizer_.subwords()->encode_word(word.text, ids);
  } else {
    const std::vector<int32_t> encoded = tokenizer_.encode(word.text);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  if (word.text.size() <= kMaxCachedWordBytes) words_.insert(word, std::span(ids).subspan(begin));
}

}  // namespace mpt
