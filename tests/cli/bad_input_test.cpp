// Bad configs and arguments, through the program: each is refused by name, and nothing is touched.
#include "checkpoint/checkpoint_store.h"
#include "cli/bad_input_world.h"
#include "core/io/directory_lock.h"

namespace mpt::test {
namespace {

using nlohmann::json;

// Trains under a new name, with keys changed on the command line.
Arguments fresh(Arguments settings, Arguments more = {}) {
  Arguments arguments{"--config", "config.json", "--set", "name=fresh"};
  for (std::string& setting : settings) {
    arguments.push_back("--set");
    arguments.push_back(std::move(setting));
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const Arguments kBadConfig{"--config", "bad.json"};

std::function<void(const Scene&)> bad_json(std::string text) {
  return [text = std::move(text)](const Scene& scene) { scene.write("bad.json", text); };
}

// The world's config with one text in it replaced.
std::function<void(const Scene&)> edited(const std::string& from, const std::string& to) {
  return [=](const Scene& scene) {
    std::string text = scene.read("config.json");
    const size_t at = text.find(from);
    check(at != std::string::npos, "the config has no {}", from);
    scene.write("bad.json", text.replace(at, from.size(), to));
  };
}

class BadConfigs : public BadInput {};

TEST_F(BadConfigs, Files) {
  expect_all_refused({
      {"missing", {"--config", "nowhere.json"}, {"nowhere.json", "configs/nowhere.json"}},
      {"missing, with a path", {"--config", "no/where.json"}, {"no/where.json: no such file"}},
      {"directory", {"--config", "data"}, {"data: is a directory"}},
      {"device", {"--config", "/dev/zero"}, {"/dev/zero: is not a regular file"}},
      {"pipe",
       kBadConfig,
       {"bad.json: is not a regular file"},
       [](const Scene& s) { s.make_pipe("bad.json"); }},
      {"empty", kBadConfig, {"bad.json: the file is empty"}, bad_json(" \n")},
      {"not JSON", kBadConfig, {"bad.json:2:1: syntax error"}, bad_json("{\"name\":\n?}")},
      {"not text", kBadConfig, {"bad.json:1"}, bad_json(std::string("\177ELF\0\xff", 6))},
      {"cut off",
       kBadConfig,
       {"bad.json:3", "unexpected end of input"},
       bad_json("{\n\"model\": {\n")},
      {"not an object",
       kBadConfig,
       {"bad.json: expected an object", "the list [1]"},
       bad_json("[1]")},
      {"nested without end",
       kBadConfig,
       {"bad.json:1: nested deeper than"},
       bad_json(fmt::format("{{\"name\":{}}}", deep_list()))},
      {"a model as config", {"--config", "tok.model"}, {"tok.model:", "syntax error"}},
      {"key given twice",
       kBadConfig,
       {"bad.json:3: seed is set twice", "line 2"},
       bad_json("{\n\"seed\": 1,\n\"seed\": 2}")},
      {"nothing in it",
       kBadConfig,
       {"bad.json: name: missing", "model.hidden_size: missing"},
       bad_json("{}")},
      {"include missing",
       kBadConfig,
       {"bad.json:1: include: base.json: no such file"},
       bad_json(R"({"include": ["base.json"]})")},
      {"include of itself",
       kBadConfig,
       {"bad.json includes itself"},
       bad_json(R"({"include": ["./data/../bad.json"]})")},
      {"include in a circle",
       kBadConfig,
       {"bad.json includes itself", "other.json -> "},
       [](const Scene& s) {
         s.write("bad.json", R"({"include": ["other.json"]})");
         s.write("other.json", R"({"include": ["bad.json"]})");
       }},
      {"include that is no list",
       kBadConfig,
       {"bad.json:1: include: expected a list of file names"},
       bad_json(R"({"include": "base.json"})")},
  });
}

TEST_F(BadConfigs, KeysAndTypes) {
  expect_all_refused({
      {"unknown key",
       kBadConfig,
       {"bad.json:5", "model.hiden_size", "did you mean \"hidden_size\""},
       edited("hidden_size", "hiden_size")},
      {"key of another section",
       kBadConfig,
       {"bad.json:3: lr_additive", "did you mean \"optimizer.lr_additive\""},
       edited("\"seed\"", "\"lr_additive\"")},
      {"unknown section", fresh({"modell.hidden_size=8"}), {"modell", "did you mean \"model\""}},
      {"text for a number",
       kBadConfig,
       {"bad.json:5: model.hidden_size", "expected an integer", "the string"},
       edited("\"hidden_size\": 16", "\"hidden_size\": \"16\"")},
      {"fraction for a count",
       fresh({"train.steps=2.5"}),
       {"train.steps: expected an integer", "2.5"}},
      {"number for a truth value",
       fresh({"data.shuffle=1"}),
       {"data.shuffle: expected true or false"}},
      {"object for a number", fresh({R"(seed={"a": 1})"}), {"seed", "the object"}},
      {"number for a section", fresh({"model=7"}), {"model", "7"}},
      {"unknown rule",
       fresh({"optimizer.rule=adam"}),
       {"optimizer.rule", "adam", "adamw", "m_plus_adam"}},
      {"unknown format", fresh({"precision.weights=fp12"}), {"precision.weights", "fp12", "bf16"}},
      {"null in a needed key", fresh({"model.vocab_size=null"}), {"model.vocab_size: missing"}},
      {"set without =", fresh({"train.steps"}), {"--set train.steps: expected key=value"}},
      {"set without key", fresh({"=5"}), {"--set =5: expected key=value"}},
      {"set of an empty key", fresh({"train..steps=5"}), {"--set train..steps=5: a key is empty"}},
      {"set of include", fresh({"include=x.json"}), {"include can be set only in a file"}},
      {"set below a number",
       fresh({"seed.low=1"}),
       {"--set seed.low=1", "seed is the number 3", "config.json:3"}},
      {"set that is not UTF-8", fresh({"name=\xff"}), {"--set name=", "the text is not UTF-8"}},
  });
}

TEST_F(BadConfigs, Values) {
  expect_all_refused({
      {"negative size",
       fresh({"model.hidden_size=-16"}),
       {"model.hidden_size: must be at least 2", "-16"}},
      {"no layers",
       fresh({"model.num_hidden_layers=0"}),
       {"model.num_hidden_layers: must be at least 1"}},
      {"no heads",
       fresh({"model.num_attention_heads=0"}),
       {"model.num_attention_heads: must be at least 1"}},
      {"no length", fresh({"batch.seq_len=0"}), {"batch.seq_len: must be at least 1"}},
      {"negative steps", fresh({"train.steps=-1"}), {"train.steps: must be at least", "-1"}},
      {"not finite",
       kBadConfig,
       {"bad.json:13", "1e999"},
       edited("\"lr_additive\": 1e-2", "\"lr_additive\": 1e999")},
      {"NaN", kBadConfig, {"bad.json:13"}, edited("\"lr_additive\": 1e-2", "\"lr_additive\": NaN")},
      {"NaN on the command line",
       fresh({"optimizer.eps=nan"}),
       {"optimizer.eps: expected a number", "nan"}},
      {"more than 64 bits", fresh({"seed=18446744073709551616"}), {"seed", "2^64"}},
      {"decay of 1", fresh({"optimizer.beta2=1"}), {"optimizer.beta2"}},
      {"name with /", fresh({"name=../tiny"}), {"name: must not", "../tiny"}},
      {"empty name", fresh({"name=\"\""}), {"name: must not be empty"}},
      {"too long a name",
       fresh({fmt::format("name={:x<300}", "")}),
       {"name: must be at most 200 bytes"}},
      {"control character",
       fresh({R"(output_dir="a\u0000b")"}),
       {"output_dir: control characters"}},
  });
}

TEST_F(BadConfigs, KeysThatDoNotGoTogether) {
  expect_all_refused({
      {"heads do not divide",
       fresh({"model.num_attention_heads=3"}),
       {"config.json:5: model.hidden_size: 16 is not divisible", "= 3",
        "--set model.num_attention_heads=3"}},
      {"odd heads",
       fresh({"model.hidden_size=6"}),
       {"model.num_attention_heads", "6 / 2 = 3", "even"}},
      {"part of a row",
       fresh({"batch.tokens_per_step=100"}),
       {"batch.tokens_per_step: 100 is not a multiple of batch.seq_len = 24 (config.json:12)"}},
      {"part of a micro-batch",
       fresh({"batch.micro_batch_rows=3"}),
       {"batch.micro_batch_rows: 3 does not divide the 4"}},
      {"two lengths",
       fresh({"train.tokens=1000"}),
       {"train", "exactly one of", "train.steps = 4", "train.tokens = 1000"}},
      {"three lengths",
       fresh({"train.tokens=1000", "train.chinchilla=1"}),
       {"train.chinchilla = 1"}},
      {"no length", fresh({"train.steps=null"}), {"exactly one of train.steps", "found none"}},
      {"no end",
       fresh({"train.steps=null", "train.tokens=1e18"}),
       {"train.tokens: makes", "at most 1000000000"}},
      {"M+Adam's key under AdamW",
       fresh({"optimizer.rule=adamw", "optimizer.lr_multiplicative=1e-3"}),
       {"optimizer.lr_multiplicative", "requires optimizer.rule = ", "m_plus_adam", "adamw"}},
      {"compensated weights that are not bf16",
       fresh({"optimizer.weight_rounding=kahan", "precision.weights=nvfp4"}),
       {"optimizer.weight_rounding: kahan cannot be combined with precision.weights = nvfp4",
        "accepted: bf16"}},
      {"eager Kahan of another rule",
       fresh({"optimizer.weight_rounding=kahan", "optimizer.kahan_variant=per_op"}),
       {"optimizer.kahan_variant: per_op cannot be combined with optimizer.rule = m_plus_adam",
        "accepted: adamw"}},
      {"block that is no power of two",
       fresh({"precision.weights=block_fp8", "precision.fp8_block_size=48"}),
       {"precision.fp8_block_size: must be 16, 32, 64, 128 or 256, found 48"}},
      {"rows that FP8 GEMMs cannot take",
       fresh({"precision.compute=fp8"}),
       {"batch.seq_len: 24 is not a multiple of 16, which precision.compute = fp8"}},
      {"FP8 key without FP8",
       fresh({"precision.fp8_history=16"}),
       {"precision.fp8_history: requires precision.compute = fp8"}},
      {"steps beyond Madam's series",
       fresh({"optimizer.rule=madam", "optimizer.lr_additive=null",
              "optimizer.lr_multiplicative=0.1"}),
       {"optimizer.lr_multiplicative: 0.1 times optimizer.g_bound = 10", "e^0.25"}},
      {"projection wider than the matrix",
       fresh({"optimizer.apollo_e=channel", "optimizer.apollo_e_rank=17"}),
       {"optimizer.apollo_e_rank: 17 is more than the smallest side of a linear layer, 16"}},
      {"two warmups",
       fresh({"schedule.warmup_steps=1", "schedule.warmup_fraction=0.1"}),
       {"schedule.warmup_steps", "cannot be combined with schedule.warmup_fraction"}},
      {"warmup beyond the end",
       fresh({"schedule.warmup_steps=5"}),
       {"schedule.warmup_steps: 5 is more than the 4"}},
      {"kept but never saved",
       fresh({"checkpoint.keep_every_steps=3"}),
       {"checkpoint.keep_every_steps: 3 is not a multiple"}},
  });
}

TEST_F(BadConfigs, Memory) {
  const Arguments beyond_63_bits{"model.hidden_size=65536", "model.intermediate_size=1048576",
                                 "model.num_hidden_layers=4096",
                                 "batch.tokens_per_step=1073741808"};
  expect_all_refused({
      {"too large a model",
       fresh({"model.hidden_size=65536", "model.num_hidden_layers=512"}),
       {"this run needs", "GiB", "no micro-batch fits"}},
      {"too large a batch",
       fresh({"batch.tokens_per_step=134217720", "batch.micro_batch_rows=5592405"}),
       {"this run needs", "batch.micro_batch_rows="}},
      {"bytes beyond 63 bits", fresh(beyond_63_bits), {"this run needs", "no micro-batch fits"}},
  });
}

// A run may record that it began: settings, and metrics of the steps it made.
const std::vector<std::string> kBegunRun{"runs/fresh/config.json", "runs/fresh/tokenizer.model",
                                         "runs/fresh/data_manifest.json",
                                         "runs/fresh/metrics.jsonl", "runs/fresh/report.json"};

TEST_F(BadConfigs, PlacesToWriteTo) {
  expect_all_refused({
      {"output_dir is a file",
       fresh({"output_dir=config.json"}),
       {"config.json: exists and is not a directory"}},
      {"output_dir cannot be made",
       fresh({"output_dir=/proc/runs"}),
       {"/proc/runs: directory cannot be created"}},
      {"the run is a file",
       fresh({}),
       {"runs/fresh: exists and is not a directory"},
       [](const Scene& s) { s.write("runs/fresh", ""); }},
      {"the lock is a directory",
       fresh({}),
       {"runs/fresh/.lock: cannot be opened"},
       [](const Scene& s) { s.make_directory("runs/fresh/.lock"); }},
      {"the settings are a directory",
       fresh({}),
       {"runs/fresh/config.json: is a directory"},
       [](const Scene& s) { s.make_directory("runs/fresh/config.json"); }},
      {"the metrics are a directory",
       fresh({}, {"--resume", "auto"}),
       {"runs/fresh/metrics.jsonl: is a directory"},
       [](const Scene& s) { s.make_directory("runs/fresh/metrics.jsonl"); },
       kBegunRun},
      {"the checkpoints are a file",
       fresh({}, {"--resume", "latest"}),
       {"runs/fresh/checkpoints: cannot be listed"},
       [](const Scene& s) {
         s.make_directory("runs/fresh");
         s.write("runs/fresh/checkpoints", "");
       }},
      {"a run is there",
       {"--config", "config.json"},
       {"runs/tiny already holds a run", "--resume auto"}},
      {"rates that end in NaN",
       fresh({"optimizer.lr_additive=1e30"}),
       {"step 2: loss", "is not finite"},
       {},
       kBegunRun},
  });
}

TEST_F(BadConfigs, TwoAtOnce) {
  const Scene scene(*world_);
  const DirectoryLock held(scene / "runs/tiny");
  expect_refused(scene, {"two at once",
                         {"--config", "config.json", "--resume", "auto"},
                         {"runs/tiny: another run is writing here", std::to_string(::getpid())}});
}

TEST_F(BadConfigs, OutputThatMayNotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const Scene scene(*world_);
  std::filesystem::permissions(
      scene / "runs", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_refused(scene, {"read-only", fresh({}), {"runs/fresh: directory cannot be created"}});
  std::filesystem::permissions(scene / "runs", std::filesystem::perms::owner_all);
}

// --- arguments -----------------------------------------------------------------------------------

TEST_F(BadConfigs, Arguments) {
  expect_all_refused({
      {"nothing", {}, {"A verb"}},
      {"unknown verb", {"tokenise"}, {"unknown verb 'tokenise' (did you mean 'tokenize'?)"}},
      {"unknown option", fresh({}, {"--resum", "auto"}), {"--resum"}},
      {"option of another verb",
       {"eval", "--checkpoint", "runs/tiny", "--prompt", "a"},
       {"--prompt"}},
      {"missing value", {"eval", "--checkpoint"}, {"--checkpoint"}},
      {"missing option", {"generate", "--checkpoint", "runs/tiny"}, {"--prompt is required"}},
      {"stray argument", {"export", "--checkpoint", "runs/tiny", "--output", "x", "y"}, {"y"}},
      {"option given twice",
       {"eval", "--checkpoint", "runs/tiny", "--checkpoint", "b"},
       {"--checkpoint"}},
      {"number with something behind",
       {"eval", "--checkpoint", "runs/tiny", "--tokens", "10k"},
       {"--tokens: '10k'"}},
      {"too many threads",
       {"eval", "--checkpoint", "runs/tiny", "--threads", "5000"},
       {"--threads: '5000'"}},
      {"unknown level", {"--log-level", "loud", "schema"}, {"--log-level: 'loud'", "debug, info"}},
  });
}

}  // namespace
}  // namespace mpt::test
