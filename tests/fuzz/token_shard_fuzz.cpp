// Reads any bytes as a token shard: ours, and those of llm.c and modded-nanogpt, which have the
// same header.
#include "data/token_shard.h"
#include "fuzz/input_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  const std::string path = fuzz::write_input("train_000000.bin", fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const TokenShard shard(path);
    (void)shard.content_hash();
    std::vector<int32_t> last(1);
    shard.read(shard.tokens() - 1, last, INT32_MAX);
    shard.check_tokens_below(50257);
  });
  return 0;
}
