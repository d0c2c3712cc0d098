// Exports a SentencePiece model as tokenizer.json, the format of Hugging Face's tokenizers library.
//
// The file yields the ids of Tokenizer::encode(), even for text that spells a control piece, such
// as "</s>". No piece is listed under added_tokens, because the library looks for those in the
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/seeded_hash.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace mpt {

// Describes what tokenizer.json cannot express of the model; "" if it expresses everything.
std::string not_in_tokenizer_json(const SentencePieceModel& model);

// `bos`: the piece that begins every encoded text; -1: none. Requires not_in_tokenizer_json() ==
// "".
nlohmann::ordered_json tokenizer_json(const SentencePieceModel& model, int64_t bos);

// The pieces that texts are made of.
using NormalPieces = std::unordered_set<std::string_view, SeededTextHash>;
NormalPieces normal_pieces(const SentencePieceModel& model);

// Pairs of pieces that BPE merges, as "left right", in merge order. Two pairs that spell the same
// piece are ordered so that of overlapping ones the left one merges first, as in SentencePiece,
// where they have the same rank. Throws Error if the pairs take more than kMaxTokenizerBytes.
std::vector<std::string> bpe_merges(const SentencePieceModel& model);

}  // namespace mpt
