// Reads any text as the state.json of a checkpoint, with its correct checksum, which an input would
// only have by chance. An accepted state is written and read again.
#include "checkpoint/checkpoint_state.h"
#include "fuzz/checkpoint_seal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  const std::string text = fuzz::sealed(fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const CheckpointRecord record = parse_checkpoint_record(kStateName, text);
    const std::string written = checkpoint_record_text(record);
    const CheckpointRecord again = parse_checkpoint_record(kStateName, written);
    check(again.files == record.files && again.state.step == record.state.step &&
              again.state.cursor == record.state.cursor && again.state.seed == record.state.seed &&
              again.state.tokens == record.state.tokens && again.saved_at == record.saved_at,
          "read again, it is another record: {}", written);
  });
  return 0;
}
