// Other programs' names for config keys and values, so that messages can suggest ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json/config_reader.h"

namespace mpt {

const UsualSpellings& usual_spellings();

// The config key path that `word`, which is not itself a key path, most likely means: "steps" ->
// "train.steps", "learning-rate" -> "optimizer.lr_additive".
std::optional<std::string> config_key_meant_by(std::string_view word);

}  // namespace mpt
