// What other programs call the keys and values of a config, so that messages can say what they are called
// here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json/config_reader.h"

namespace mpt {

const UsualSpellings& usual_spellings();

// The key path of a config that a word stands for which is none itself: "steps" -> "train.steps",
// "learning-rate" -> "optimizer.lr_additive".
std::optional<std::string> config_key_meant_by(std::string_view word);

}  // namespace mpt
