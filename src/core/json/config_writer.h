// Writes a config struct as JSON by the struct's field list (config_fields.h): every key with its
// value, including defaults.
//
// Omits optionals without a value and keys made meaningless by the others, so that reading the
// output back gives an equal struct.
#pragma once

#include "core/json/config_fields.h"
#include "core/json/json_parse.h"

namespace mpt {

Json write_fields(const Fields& fields);
template <HasFields S>
Json write_fields(S config) {
  return write_fields(Fields::of(config));
}

// Returns the JSON Schema (draft 2020-12) of a config struct.
//
// Describes any config file, including included pieces: names, types, ranges, accepted names,
// defaults, documentation. Required keys are only marked in the description, since an included
// piece may set them. Every key may be null, which means absent. A key shared by several
// alternatives of a choice is described once and must have the same type, bounds and meaning in all
// of them; its default is omitted if the defaults differ.
Json schema_of_fields(const Fields& defaults);
template <HasFields S>
Json schema_of_fields(S defaults) {
  return schema_of_fields(Fields::of(defaults));
}

}  // namespace mpt
