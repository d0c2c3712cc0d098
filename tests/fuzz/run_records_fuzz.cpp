// Reads any bytes as the records of a run: metrics.jsonl, samples.jsonl, config.json and
// report.json; and makes a page of them.
#include <filesystem>

#include "fuzz/input_directory.h"
#include "watch/run_page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  std::string_view text = fuzz::text_of(data, size);
  const std::string metrics = fuzz::write_input("metrics.jsonl", fuzz::next_part(text));
  for (const char* name : {"samples.jsonl", "config.json", "report.json"}) {
    const std::string_view part = fuzz::next_part(text);
    const std::string path = fuzz::write_input(name, part);
    if (part.empty()) std::filesystem::remove(path);
  }
  fuzz::accept_or_refuse([&] {
    const RunRecords run = read_run(posix_file_system(), metrics);
    for (const auto& [tag, curve] : run.curves)
      for (size_t i = 1; i < curve.size(); ++i)
        check(curve[i - 1].step < curve[i].step, "steps of {} go back", tag);
    const std::string page = run_page({run, run});
    check(int64_t(page.size()) < kMostPageBytes, "a page of {} bytes", page.size());
    check(page.find("<script") == std::string::npos, "a script in the page");
  });
  return 0;
}
