// Reads any text as the configuration of a run. Lines "---" divide it into run.json, part_1.json
// and so on, which may include each other; includes from elsewhere on the disk are skipped.
//
// An accepted configuration is written and must read back as an equal one.
#include <algorithm>
#include <array>

#include "config/run_config_json.h"
#include "fuzz/input_directory.h"

namespace {

using namespace mpt;

constexpr std::array kFiles{"run.json", "part_1.json", "part_2.json", "part_3.json"};

bool includes_from_elsewhere(std::string_view part) try {
  const Json value = parse_json(part, "part").value;
  if (!value.is_object() || !value.contains("include")) return false;
  return std::ranges::any_of(value["include"], [](const Json& file) {
    return file.is_string() && file.get_ref<const std::string&>().find('/') != std::string::npos;
  });
} catch (const Error&) {
  return false;
}

void read(const std::string& path) {
  const RunConfig config = parse_run_config(JsonDocument::load(path));
  check(total_steps(config) > 0, "{} steps", total_steps(config));
  const Json written = resolved_json(config);
  const RunConfig again = parse_run_config(JsonDocument::of_value(written, "written"));
  check(again == config, "read again, it is another configuration: {}", written.dump());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest = fuzz::text_of(data, size);
  for (const char* file : kFiles) {
    const std::string_view part = fuzz::next_part(rest);
    if (includes_from_elsewhere(part)) return 0;
    fuzz::write_input(file, part);
  }
  fuzz::accept_or_refuse([] { read(fuzz::input_directory() / kFiles.front()); });
  return 0;
}
