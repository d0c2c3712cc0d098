// Reads any bytes as a checkpoint of two files: the text of state.json and the bytes of the files,
// separated by lines "---". The state is given the files' names, sizes and hashes and its own
// checksum, so that the rest is reached.
#include <array>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "fuzz/checkpoint_seal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  std::string_view rest = fuzz::text_of(data, size);
  const std::string_view state = fuzz::next_part(rest), first = fuzz::next_part(rest);
  const std::array files{first, rest};
  for (size_t i = 0; i < files.size(); ++i)
    fuzz::write_input(rank_file_name(static_cast<int64_t>(i), std::ssize(files)), files[i]);
  fuzz::write_input(kStateName, fuzz::sealed(state, files));
  fuzz::accept_or_refuse([] {
    const std::string& directory = fuzz::input_directory().path();
    FileSystem& fs = posix_file_system();
    inspect_checkpoint(fs, directory);
    const StoredTensors stored(fs, directory, read_checkpoint_record(fs, directory).files);
    for (const auto& [name, tensor] : stored.tensors()) {
      std::vector<std::byte> content(static_cast<size_t>(tensor.info.bytes()));
      StoredTensors::read(tensor, 0, content);
    }
    verify_checkpoint(fs, directory);
  });
  return 0;
}
