// Bad text, tokenizers and shards, through the program: each is refused by name, and nothing is
// touched.
#include <zlib.h>

#include "cli/bad_input_world.h"

namespace mpt::test {
namespace {

using nlohmann::json;

constexpr const char* kShard = "data/train_000000.bin";
constexpr const char* kManifest = "data/manifest.json";
constexpr size_t kHeaderBytes = 1024;

const Arguments kTrain{"--config", "config.json", "--set", "name=fresh"};

Arguments training(const Arguments& settings) {
  Arguments arguments = kTrain;
  for (const std::string& setting : settings) {
    arguments.push_back("--set");
    arguments.push_back(setting);
  }
  return arguments;
}

Damage word(size_t number, int32_t value) {
  return [=](const Scene& scene) {
    scene.put_bytes(kShard, 4 * number, {reinterpret_cast<const char*>(&value), sizeof value});
  };
}

Damage directory_as(const std::string& name) {
  return [=](const Scene& scene) {
    scene.remove(name);
    scene.make_directory(name);
  };
}

Damage text_as(const std::string& name, const std::string& text) {
  return [=](const Scene& scene) { scene.write(name, text); };
}

Damage manifest(const std::function<void(json&)>& change) {
  return [=](const Scene& scene) { scene.change_json(kManifest, change); };
}

// Fills every token, whichever ones the run visits.
void fill_tokens(const Scene& scene, const std::string& shard) {
  std::string bytes = scene.read(shard);
  std::fill(bytes.begin() + std::ptrdiff_t(kHeaderBytes), bytes.end(), '\xff');
  scene.write(shard, bytes);
}

class BadData : public BadInput {};

// --- shards --------------------------------------------------------------------------------------

TEST_F(BadData, Shards) {
  expect_all_refused({
      {"none named", training({"data.train=null"}), {"data.train: no training shards"}},
      {"none matches",
       training({"data.train=data/no_*.bin"}),
       {"data.train: data/no_*.bin: no such file", "mpretrain tokenize", "scripts/prepare_c4.sh"}},
      {"none validates",
       training({"data.validation=data/no_*.bin"}),
       {"data.validation: data/no_*.bin: no such file", "mpretrain tokenize"}},
      {"named twice",
       training({R"(data.train=["data/train_*.bin","data/train_000000.bin"])"}),
       {kShard, "named twice"}},
      {"directory",
       training({"data.train=data"}),
       {"data.train: data is a directory; name its shards, such as data/train_*.bin"}},
      {"directory under its name", kTrain, {kShard, "is a directory"}, directory_as(kShard)},
      {"pipe",
       kTrain,
       {kShard, "is not a regular file"},
       [](const Scene& s) {
         s.remove(kShard);
         s.make_pipe(kShard);
       }},
      {"empty", kTrain, {kShard, "0 bytes, too few"}, text_as(kShard, "")},
      {"truncated header",
       kTrain,
       {kShard, "1000 bytes, too few"},
       text_as(kShard, std::string(1000, 'x'))},
      {"truncated", kTrain, {kShard, "truncated"}, [](const Scene& s) { s.cut(kShard, 1); }},
      {"too long",
       kTrain,
       {kShard, "too long"},
       [](const Scene& s) { s.write(kShard, s.read(kShard) + "x"); }},
      {"wrong magic", kTrain, {kShard, "header word 0 is 7", "20240520"}, word(0, 7)},
      {"wrong version", kTrain, {kShard, "header word 1 is version 2"}, word(1, 2)},
      {"no tokens", kTrain, {kShard, "header word 2 is 0 tokens"}, word(2, 0)},
      {"negative count", kTrain, {kShard, "header word 2 is -1 tokens"}, word(2, -1)},
      {"another count", kTrain, {kShard, "the 6000 tokens", "too long"}, word(2, 6000)},
      {"the largest count",
       kTrain,
       {kShard, "the 2147483647 tokens", "truncated"},
       word(2, INT32_MAX)},
      {"text as shard", training({"data.train=corpus.txt"}), {"corpus.txt: header word 0"}},
      {"tokens beyond the vocabulary",
       kTrain,
       {kShard, "token 65535 at position", "0 to 299"},
       [](const Scene& s) { fill_tokens(s, kShard); },
       {"runs/fresh/config.json", "runs/fresh/tokenizer.model", "runs/fresh/data_manifest.json",
        "runs/fresh/metrics.jsonl", "runs/fresh/report.json"}},
      {"the same without a manifest, before anything is written",
       kTrain,
       {kShard, "token 65535 at position 0", "0 to 299"},
       [](const Scene& s) {
         fill_tokens(s, kShard);
         s.remove(kManifest);
       }},
      {"validation beyond the vocabulary, before anything is written",
       kTrain,
       {"data/val_000000.bin: token 65535 at position 0", "0 to 299"},
       [](const Scene& s) { fill_tokens(s, "data/val_000000.bin"); }},
      {"the same in validation",
       {"eval", "--checkpoint", "runs/tiny"},
       {"data/val_000000.bin: token 65535"},
       [](const Scene& s) { fill_tokens(s, "data/val_000000.bin"); }},
      {"broken validation",
       kTrain,
       {"data/val_000000.bin", "truncated"},
       [](const Scene& s) { s.cut("data/val_000000.bin", 2); }},
      {"less than a sequence",
       training({"batch.seq_len=7000", "batch.tokens_per_step=7000"}),
       {"tokens are too few for one sequence", "7001"}},
      {"no index",
       training({"data.pack=false"}),
       {"data/train_000000.idx: no such document index"},
       without("data/train_000000.idx")},
      {"index of another shard",
       training({"data.pack=false"}),
       {"data/train_000000.idx: belongs to a shard of"},
       [](const Scene& s) { s.write("data/train_000000.idx", s.read("data/val_000000.idx")); }},
      {"truncated index",
       training({"data.pack=false"}),
       {"data/train_000000.idx: lists 94 documents"},
       [](const Scene& s) { s.cut("data/train_000000.idx", 8); }},
      {"empty index",
       training({"data.pack=false"}),
       {"data/train_000000.idx"},
       text_as("data/train_000000.idx", "")},
      {"index out of order",
       training({"data.pack=false"}),
       {"data/train_000000.idx: document 1 begins at"},
       [](const Scene& s) { s.put_bytes("data/train_000000.idx", 39, "\x7f"); }},
  });
}

TEST_F(BadData, Manifests) {
  const auto many = [](const char* split) {
    return [=](json& m) { m["splits"][split]["shards"][0]["tokens"] = uint64_t{1} << 63; };
  };
  expect_all_refused({
      {"not JSON", kTrain, {kManifest, "not valid JSON"}, text_as(kManifest, "{")},
      {"empty", kTrain, {kManifest, "not valid JSON"}, text_as(kManifest, "")},
      {"directory", kTrain, {kManifest, "is a directory"}, directory_as(kManifest)},
      {"nested without end",
       kTrain,
       {kManifest, "nested deeper than"},
       text_as(kManifest, fmt::format("{{\"format\":{}}}", deep_list()))},
      {"not an object",
       kTrain,
       {kManifest, "the top level is not a JSON object"},
       text_as(kManifest, "[]")},
      {"another format", kTrain, {kManifest, "format is 'cake'"}, manifest([](json& m) {
         m["format"] = "cake";
       })},
      {"another version", kTrain, {kManifest, "format_version is 9"}, manifest([](json& m) {
         m["format_version"] = 9;
       })},
      {"no splits", kTrain, {kManifest, "field splits is missing"}, manifest([](json& m) {
         m.erase("splits");
       })},
      {"text as count",
       kTrain,
       {kManifest, "splits.train.documents is \"many\""},
       manifest([](json& m) { m["splits"]["train"]["documents"] = "many"; })},
      {"negative count",
       kTrain,
       {kManifest, "splits.train.shards[0].tokens is -5"},
       manifest([](json& m) { m["splits"]["train"]["shards"][0]["tokens"] = -5; })},
      {"count beyond 63 bits",
       kTrain,
       {kManifest, "splits.val.shards[0].tokens is 9223372036854775808"},
       manifest(many("val"))},
      {"path as shard",
       kTrain,
       {kManifest, "'../corpus.txt' is not the name of a file"},
       manifest([](json& m) { m["splits"]["train"]["shards"][0]["file"] = "../corpus.txt"; })},
      {"counts that do not add up",
       kTrain,
       {kManifest, "a split lists", "its shards add up to 5"},
       manifest([](json& m) { m["splits"]["train"]["shards"][0]["tokens"] = 5; })},
      {"unlisted shard",
       training({"data.train=data/extra.bin"}),
       {"data/extra.bin: not among the shards", kManifest},
       [](const Scene& s) { s.write("data/extra.bin", s.read(kShard)); }},
      {"listed with other counts",
       kTrain,
       {kShard, "tokens, but data/manifest.json lists 6936"},
       manifest([](json& m) {
         m["splits"]["train"]["shards"][0]["tokens"] = 6936;
         m["splits"]["train"]["tokens"] = 6936;
       })},
      {"of another tokenizer",
       kTrain,
       {kManifest, "made with the tokenizer of hash 0000"},
       manifest([](json& m) { m["tokenizer"]["hash"] = "0000"; })},
      {"of a larger vocabulary",
       kTrain,
       {kManifest, "has 301 pieces", "300"},
       manifest([](json& m) { m["tokenizer"]["vocab_size"] = 301; })},
  });
}

// --- tokenizers ----------------------------------------------------------------------------------

Arguments generate_with(const std::string& tokenizer) {
  return {"generate", "--checkpoint", "runs/tiny", "--prompt", "abc", "--tokenizer", tokenizer};
}

Arguments tokenize_with(const std::string& tokenizer) {
  return {"tokenize", "--input", "corpus.txt", "--tokenizer", tokenizer, "--output", "new"};
}

TEST_F(BadData, Tokenizers) {
  expect_all_refused({
      {"missing",
       training({"data.tokenizer=no.model"}),
       {"data.tokenizer: no.model: no such file", "mpretrain tokenizer", "mpretrain tokenize`",
        "scripts/prepare_c4.sh"}},
      {"missing for tokenize", tokenize_with("no.model"), {"no.model: no such file"}},
      {"missing for generate", generate_with("no.model"), {"no.model: no such file"}},
      {"directory", training({"data.tokenizer=data"}), {"data: is a directory"}},
      {"pipe",
       generate_with("pipe"),
       {"pipe: is not a regular file"},
       [](const Scene& s) { s.make_pipe("pipe"); }},
      {"empty",
       tokenize_with("bad.model"),
       {"bad.model: not a SentencePiece model"},
       text_as("bad.model", "")},
      {"text", generate_with("corpus.txt"), {"corpus.txt: not a SentencePiece model"}},
      {"shard as tokenizer", tokenize_with(kShard), {kShard, "not a SentencePiece model"}},
      {"cut off",
       tokenize_with("tok.model"),
       {"tok.model: not a SentencePiece model"},
       [](const Scene& s) { s.cut("tok.model", 2000); }},
      {"more pieces than the model",
       training({"data.tokenizer=larger.model"}),
       {"model.vocab_size is 300", "larger.model has 320 pieces"}},
      {"the same for generate",
       generate_with("larger.model"),
       {"larger.model has 320 pieces, the model has 300"}},
      {"the same for export",
       {"export", "--checkpoint", "runs/tiny", "--output", "new", "--tokenizer", "larger.model"},
       {"larger.model has 320 pieces"}},
      {"other than that of the shards",
       training({"model.vocab_size=320", "data.tokenizer=larger.model"}),
       {kManifest, "made with the tokenizer of hash"}},
      {"gone",
       {"generate", "--checkpoint", "runs/tiny", "--prompt", "a"},
       {"data/tokenizer.model", "not found (from", "--tokenizer"},
       [](const Scene& s) {
         s.remove("data/tokenizer.model");
         s.remove("runs/tiny/tokenizer.model");
       }},
  });
}

// --- text ----------------------------------------------------------------------------------------

std::string compressed(std::string text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream zlib{};
  check(deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
  zlib.next_in = reinterpret_cast<Bytef*>(text.data());
  zlib.avail_in = uInt(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = uInt(out.size());
  check(deflate(&zlib, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

Damage compressed_corpus(size_t kept_percent, size_t flipped) {
  return [=](const Scene& scene) {
    std::string bytes = compressed(scene.read("corpus.txt"));
    bytes.resize(bytes.size() * kept_percent / 100);
    if (flipped > 0) bytes.at(flipped) = char(bytes[flipped] ^ 0x55);
    scene.write("bad.txt.gz", bytes);
  };
}

// Each is read by both verbs, which must find the same fault and leave their outputs untouched.
void add_for_both(std::vector<Refusal>& refusals, const std::string& title,
                  const std::string& input, const std::vector<std::string>& says,
                  const Damage& damage = {}) {
  const Arguments tokenizer{"tokenizer", "--input",  input,      "--vocab-size",
                            "290",       "--output", "new.model"};
  const Arguments tokenize{"tokenize",  "--input",  input,  "--tokenizer",
                           "tok.model", "--output", "data", "--overwrite"};
  refusals.push_back({title + ", tokenizer", tokenizer, says, damage});
  refusals.push_back({title + ", tokenize", tokenize, says, damage});
}

TEST_F(BadData, Text) {
  std::vector<Refusal> refusals;
  const auto both = [&](auto&&... row) { add_for_both(refusals, row...); };
  both("missing", "no.txt", std::vector<std::string>{"no.txt: no such file"});
  both("no match", "no/*.txt", std::vector<std::string>{"no/*.txt: no such file"});
  both("directory", "data", std::vector<std::string>{"data: is a directory"});
  both("pipe", "pipe.txt", std::vector<std::string>{"pipe.txt: is not a regular file"},
       [](const Scene& s) { s.make_pipe("pipe.txt"); });
  both("unknown kind", "tok.model",
       std::vector<std::string>{"tok.model: unknown kind of text file", ".jsonl"});
  both("empty", "bad.txt", std::vector<std::string>{"bad.txt: no "}, text_as("bad.txt", ""));
  both("blank", "bad.txt", std::vector<std::string>{"bad.txt: no "},
       text_as("bad.txt", "\n \n\t\n"));
  both("not UTF-8", "bad.txt",
       std::vector<std::string>{"bad.txt:3: not valid UTF-8 (byte 0xff)", "--on-bad-document skip"},
       text_as("bad.txt",
               "good\n\nb\xff"
               "d\n"));
  both("not JSON", "bad.jsonl",
       std::vector<std::string>{"bad.jsonl:2: not a JSON object on one line", "one object per line",
                                "--on-bad-document skip"},
       text_as("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \n"));
  both("no text", "bad.jsonl",
       std::vector<std::string>{"bad.jsonl:1: no field 'text'", "body", "--text-field"},
       text_as("bad.jsonl", "{\"body\": \"a\"}\n"));
  both("a list over several lines", "bad.json",
       std::vector<std::string>{"bad.json:1: ", "one object per line", "jq -c '.[]' bad.json"},
       text_as("bad.json", "[\n  {\n    \"text\": \"a\"\n  }\n]\n"));
  both("a list on one line", "bad.json",
       std::vector<std::string>{"bad.json:1: ", "jq -c '.[]' bad.json"},
       text_as("bad.json", "[{\"text\": \"a\"}]\n"));
  both("an object over several lines", "bad.json",
       std::vector<std::string>{"bad.json:1: ", "jq -c . bad.json"},
       text_as("bad.json", "{\n  \"text\": \"a\"\n}\n"));
  both("text that is none", "bad.jsonl",
       std::vector<std::string>{"bad.jsonl:1: field 'text' is number"},
       text_as("bad.jsonl", "{\"text\": 5}\n"));
  both("JSON without end", "bad.jsonl", std::vector<std::string>{"bad.jsonl:1: "},
       text_as("bad.jsonl", deep_list()));
  both("truncated gzip", "bad.txt.gz",
       std::vector<std::string>{"bad.txt.gz: the gzip data is truncated"},
       compressed_corpus(50, 0));
  both("damaged gzip", "bad.txt.gz", std::vector<std::string>{"bad.txt.gz: damaged gzip data"},
       compressed_corpus(100, 2000));
  both("no zstd", "bad.jsonl.zst", std::vector<std::string>{"bad.jsonl.zst: named .zst"},
       text_as("bad.jsonl.zst", "{}"));
  both("no Parquet", "bad.parquet", std::vector<std::string>{"bad.parquet: is not a Parquet file"},
       text_as("bad.parquet", "{\"text\": \"a\"}\n"));
  both("truncated Parquet", "bad.parquet", std::vector<std::string>{"bad.parquet: is truncated"},
       text_as("bad.parquet", "PAR1, and then nothing else of it"));
  both("standard input without a kind", "-",
       std::vector<std::string>{"standard input: say what it holds with --as"});
  both("no gzip", "bad.txt.gz", std::vector<std::string>{"bad.txt.gz: named .gz"},
       text_as("bad.txt.gz", "plain"));
  expect_all_refused(refusals);
}

Arguments tokenizer_of(const std::string& size, const std::string& output) {
  return {"tokenizer", "--input", "corpus.txt", "--vocab-size", size, "--output", output};
}

Arguments tokenize_to(const std::string& output, const Arguments& more = {}) {
  Arguments arguments{"tokenize",  "--input",  "corpus.txt", "--tokenizer",
                      "tok.model", "--output", output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(BadData, SizesSharesAndPlaces) {
  expect_all_refused({
      {"more pieces than words",
       tokenizer_of("100000", "more"),
       {"vocab_size is 100000", "at most"}},
      {"fewer pieces than characters",
       tokenizer_of("260", "less"),
       {"vocab_size is 260", "characters alone need"}},
      {"directory that cannot be made",
       tokenizer_of("290", "/proc/no/new"),
       {"/proc/no: directory cannot be created"}},
      {"directory that is a file",
       tokenizer_of("290", "tok.model/new"),
       {"tok.model: exists and is not a directory"}},
      {"a tokenizer is there",
       tokenizer_of("290", "tok"),
       {"tok.model: already exists", "--overwrite"}},
      {"a directory is there",
       tokenizer_of("290", "new"),
       {"new.model: is a directory"},
       [](const Scene& s) { s.make_directory("new.model"); }},
      {"share of 2",
       tokenize_to("new", {"--validation-fraction", "2"}),
       {"--validation-fraction", "'2'"}},
      {"share below 0",
       tokenize_to("new", {"--validation-fraction=-1"}),
       {"--validation-fraction", "'-1'"}},
      {"share of NaN",
       tokenize_to("new", {"--validation-fraction", "nan"}),
       {"--validation-fraction", "'nan'"}},
      {"all for validation",
       tokenize_to("new", {"--validation-fraction", "1"}),
       {"validation_fraction is 1"}},
      {"next to none for validation",
       tokenize_to("new", {"--validation-fraction", "1e-12"}),
       {"none of the 120 documents fell into the val split"}},
      {"shards are there",
       tokenize_to("data"),
       {"data: contains", "of an earlier run", "--overwrite"}},
      {"another tokenizer is there",
       tokenize_to("data"),
       {"data/tokenizer.model: is not the tokenizer", "--overwrite"},
       [](const Scene& s) { s.write("data/tokenizer.model", s.read("larger.model")); }},
      {"output is a file",
       tokenize_to("config.json"),
       {"config.json: exists and is not a directory"}},
      {"output cannot be made",
       tokenize_to("/proc/new"),
       {"/proc/new: directory cannot be created"}},
  });
}

}  // namespace
}  // namespace mpt::test
