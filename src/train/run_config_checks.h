// What a run config must satisfy beyond the type and range of each key.
#pragma once

#include "core/json_fields_read.h"
#include "train/run_config.h"

namespace mpt {

// Keys that exclude each other, sizes that must divide; `document` says where the keys were written. Every
// key of `config` must be in its range.
Problems clashes(const RunConfig& config, const JsonDocument& document);

}  // namespace mpt
