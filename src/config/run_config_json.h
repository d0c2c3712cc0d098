// A run config as JSON: parsed, written with its defaults, described by a schema.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/json/json_document.h"
#include "core/json/problems.h"

namespace mpt {

// load_run_config() for a parsed document, such as a checkpoint's resolved config.
RunConfig parse_run_config(JsonDocument document);

// Checks combinations of keys: mutually exclusive keys, sizes that must divide. `document` gives
// the location of each key. Every key of `config` must be in range.
Problems clashes(const RunConfig& config, const JsonDocument& document);

// Every key with its value, including defaults.
Json resolved_json(const RunConfig& config);
Json run_config_schema();
// The schema in the form of configs/schema.json.
std::string schema_text();

}  // namespace mpt
