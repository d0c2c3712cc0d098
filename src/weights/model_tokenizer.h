// The tokenizer of a model: where it is searched for, and what it must match.
#pragma once

#include <string>

#include "config/run_config.h"
#include "text/tokenizer.h"
#include "weights/loaded_model.h"

namespace mpt {

struct TokenizerFile {
  std::string path;          // "" if there is none
  bool prepend_bos = false;  // training texts of the model began with BOS
  std::string data_hash;     // hash of the data's tokenizer; "" if unknown
};

// Finds the tokenizer of a model: `given` if not empty, else the copy stored by its checkpoint's
// run, else data.tokenizer of the config, else the one named by the manifest next to the data.
// Missing files are skipped, except `given`.
TokenizerFile find_tokenizer(const SavedWeights& model, const std::string& given);
// Finds the tokenizer of a run that has no checkpoint yet.
TokenizerFile find_tokenizer(const RunConfig& config, const std::string& given);

// Error text: the places that find_tokenizer() searched, and a hint at --tokenizer.
std::string missing_tokenizer(const RunConfig& config);

// Throws Error if find_tokenizer() found none, or if the tokenizer has more pieces than the model's
// vocabulary. Warns if the data's manifest names a different tokenizer hash.
Tokenizer load_tokenizer(const RunConfig& config, const TokenizerFile& file);

}  // namespace mpt
