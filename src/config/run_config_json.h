// A run config as JSON: parsed, written out with its defaults, described by a schema.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/json/json_document.h"
#include "core/json/problems.h"

namespace mpt {

// load_run_config() for a parsed document, such as a checkpoint's resolved config.
RunConfig parse_run_config(JsonDocument document);

// Checks combinations of keys: mutually exclusive keys, sizes that must divide. `document` tells
// where the keys were written. Every key of `config` must be in its range.
Problems clashes(const RunConfig& config, const JsonDocument& document);

// Every key with its value, including defaults.
Json resolved_json(const RunConfig& config);
Json run_config_schema();
// The schema as configs/schema.json holds it.
std::string schema_text();

}  // namespace mpt
