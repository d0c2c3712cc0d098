// A SentencePiece model as tokenizer.json, the file of Hugging Face's tokenizers library.
//
// The file gives the ids of Tokenizer::encode(), also for text that spells a control piece, such as
// "</s>". No piece is listed under added_tokens, because the library looks for those in the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/seeded_hash.h"
#include "data/sentencepiece/sentencepiece_model.h"

namespace mpt {

// What of the model tokenizer.json cannot express; "" if it expresses everything.
std::string not_in_tokenizer_json(const SentencePieceModel& model);

// `bos`: the piece that begins every encoded text; -1: none. Requires not_in_tokenizer_json() ==
// "".
nlohmann::ordered_json tokenizer_json(const SentencePieceModel& model, int64_t bos);

// The pieces that texts are made of.
using NormalPieces = std::unordered_set<std::string_view, SeededTextHash>;
NormalPieces normal_pieces(const SentencePieceModel& model);

// Pairs of pieces that BPE joins, first those that it joins first, as "left right". Two pairs that
// spell the same piece rank such that of overlapping ones the left one comes first, as in
// SentencePiece, where they have the same rank. Throws Error if they have more than
// kMaxTokenizerBytes.
std::vector<std::string> bpe_merges(const SentencePieceModel& model);

}  // namespace mpt
