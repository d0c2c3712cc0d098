// Bad checkpoints, and bad use of good ones, through the program: each is refused by name, and
// nothing is touched.
#include "cli/bad_input_world.h"
#include "core/io/safetensors.h"

namespace mpt::test {
namespace {

using nlohmann::json;

const std::string kNewest = "runs/tiny/checkpoints/step_00000004";
const std::string kEarlier = "runs/tiny/checkpoints/step_00000002";
const std::string kState = kNewest + "/state.json";
const std::string kTensors = kNewest + "/rank_00000_of_00001.safetensors";

// Resumes from the newest checkpoint by name, past its end, so that there are steps left.
Arguments resumed(const Arguments& settings = {}, const std::string& from = kNewest) {
  Arguments arguments{"--config", "config.json", "--set", "train.steps=6"};
  for (const std::string& setting : settings) {
    arguments.push_back("--set");
    arguments.push_back(setting);
  }
  arguments.push_back("--resume");
  arguments.push_back(from);
  return arguments;
}

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Arguments eval(const std::string& checkpoint, const Arguments& more = {}) {
  return with({"eval", "--checkpoint", checkpoint}, more);
}
Arguments generate(const std::string& prompt, const Arguments& more = {}) {
  return with({"generate", "--checkpoint", "runs/tiny", "--prompt", prompt}, more);
}
Arguments export_to(const std::string& output, const Arguments& more = {}) {
  return with({"export", "--checkpoint", "runs/tiny", "--output", output}, more);
}

Damage state_text(const std::string& text) {
  return [=](const Scene& scene) { scene.write(kState, text); };
}
// With a new checksum, as if written by a program.
Damage state(const std::function<void(json&)>& change) {
  return [=](const Scene& scene) { scene.change_state(kState, change); };
}

// Replaces the bytes of the tensors, with the matching sums in state.json.
void replace_tensors(const Scene& scene, const std::string& bytes) {
  scene.write(kTensors, bytes);
  scene.change_state(kState, [&](json& content) {
    content["files"][0]["bytes"] = bytes.size();
    content["files"][0]["hash"] = hash_bytes(bytes_of(bytes));
  });
}

Damage tensors(const std::function<void(std::string&)>& change) {
  return [=](const Scene& scene) {
    std::string bytes = scene.read(kTensors);
    change(bytes);
    replace_tensors(scene, bytes);
  };
}

// In the header, keeping its length.
void replace_text(std::string& bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  check(at != std::string::npos && from.size() == to.size(), "no {} to replace", from);
  bytes.replace(at, from.size(), to);
}

void fill_with_nan(const Scene& scene) {
  const SafetensorsReader reader(posix_file_system(), scene / kTensors);
  const SafetensorsReader::Entry head = reader.at("lm_head.weight");
  std::string bytes = scene.read(kTensors);
  std::fill(bytes.begin() + head.begin, bytes.begin() + head.end, '\xff');
  replace_tensors(scene, bytes);
}

void break_both_checkpoints(const Scene& s) {
  s.remove(kTensors);
  s.write(kEarlier + "/state.json", "{}");
}

class BadCheckpoints : public BadInput {};

TEST_F(BadCheckpoints, PlacesToResumeFrom) {
  expect_all_refused({
      {"missing", resumed({}, "runs/none"), {"runs/none: not a checkpoint: no such directory"}},
      {"file", resumed({}, "config.json"), {"config.json: not a checkpoint: no such directory"}},
      {"run", resumed({}, "runs/tiny"), {"runs/tiny: not a checkpoint: state.json is missing"}},
      {"shards", resumed({}, "data"), {"data: not a checkpoint: state.json is missing"}},
      {"export", resumed({}, "exported"), {"exported: not a checkpoint: state.json is missing"}},
      {"latest of none",
       resumed({"name=fresh"}, "latest"),
       {"runs/fresh/checkpoints has no checkpoint"}},
      {"latest of broken ones",
       resumed({}, "latest"),
       {"--resume latest", "all checkpoints in runs/tiny/checkpoints are corrupt"},
       break_both_checkpoints},
      {"auto does not start anew over broken ones",
       resumed({}, "auto"),
       {"--resume auto", "all checkpoints in runs/tiny/checkpoints are corrupt"},
       break_both_checkpoints},
      {"eval of none", eval("runs/none"), {"runs/none: no such checkpoint"}},
      {"eval of a file", eval(kTensors), {kTensors, "not a directory"}},
      {"eval of shards", eval("data"), {"data: neither a checkpoint", "nor a run"}},
      {"eval of broken ones",
       eval("runs/tiny"),
       {"runs/tiny: all of its 2 checkpoints are corrupt"},
       [](const Scene& s) {
         s.cut(kTensors, 1);
         s.remove(kEarlier + "/state.json");
       }},
      {"generate of none",
       {"generate", "--checkpoint", "runs/none", "--prompt", "a"},
       {"runs/none: no such checkpoint"}},
      {"export of none",
       {"export", "--checkpoint", "runs/none", "--output", "new"},
       {"runs/none: no such checkpoint"}},
  });
}

TEST_F(BadCheckpoints, DamagedFiles) {
  expect_all_refused({
      {"no tensors", resumed(), {kTensors, "is missing"}, without(kTensors)},
      {"no state", resumed(), {kNewest, "state.json is missing"}, without(kState)},
      {"truncated tensors",
       resumed(),
       {kTensors, "bytes"},
       [](const Scene& s) { s.cut(kTensors, 7); }},
      {"empty tensors",
       resumed(),
       {kTensors, "has 0 bytes"},
       [](const Scene& s) { s.write(kTensors, ""); }},
      {"flipped byte",
       resumed(),
       {kTensors, "was altered"},
       [](const Scene& s) { s.flip_byte(kTensors, 50000); }},
      {"flipped byte, eval",
       eval(kNewest),
       {kTensors, "was altered"},
       [](const Scene& s) { s.flip_byte(kTensors, 50000); }},
      {"of the earlier step",
       resumed(),
       {kTensors, "was altered"},
       [](const Scene& s) {
         s.write(kTensors, s.read(kEarlier + "/rank_00000_of_00001.safetensors"));
       }},
      {"directory for tensors",
       resumed(),
       {kTensors},
       [](const Scene& s) {
         s.remove(kTensors);
         s.make_directory(kTensors);
       }},
      {"pipe for state",
       resumed(),
       {kState, "is not a regular file"},
       [](const Scene& s) {
         s.remove(kState);
         s.make_pipe(kState);
       }},
      {"no safetensors",
       resumed(),
       {kTensors, "not a safetensors file"},
       tensors([](std::string& bytes) { bytes = std::string(9, '\xff'); })},
      {"a header of garbage",
       resumed(),
       {kTensors, "header is not valid JSON"},
       tensors([](std::string& b) { b[8] = '?'; })},
      {"another shape", resumed(), {kTensors, "tensor", "[300, 17]"}, tensors([](std::string& b) {
         replace_text(b, "[300,16]", "[300,17]");
       })},
      {"another name",
       resumed(),
       {kNewest, "has no tensor 'lm_head.weight'"},
       tensors(
           [](std::string& b) { replace_text(b, "\"lm_head.weight\"", "\"lm_tail.weight\""); })},
      {"weights of NaN", generate("abc"), {"logit", "nan", "unusable"}, fill_with_nan, {}, "abc"},
  });
}

TEST_F(BadCheckpoints, States) {
  expect_all_refused({
      {"garbage", resumed(), {kState, "not valid JSON"}, state_text("\x01\x02 nonsense")},
      {"empty", resumed(), {kState, "not valid JSON"}, state_text("")},
      {"list", resumed(), {kState, "not a JSON object"}, state_text("[]")},
      {"nested without end",
       resumed(),
       {kState, "nested deeper than 64 levels"},
       state_text(fmt::format("{{\"step\":{}}}", deep_list()))},
      {"another format", eval(kNewest), {kState, "\"format\"", "cake"}, state([](json& s) {
         s["format"] = "cake";
       })},
      {"another version",
       resumed(),
       {kState, "format version 3", "reads versions 1 to 2"},
       state([](json& s) { s["version"] = 3; })},
      {"edited",
       resumed(),
       {kState, "was altered", "checksum"},
       [](const Scene& s) { s.change_json(kState, [](json& content) { content["step"] = 3; }); }},
      {"no step", resumed(), {kState, "step"}, state([](json& s) { s.erase("step"); })},
      {"text for a step",
       resumed(),
       {kState, "step is \"four\"; expected an integer"},
       state([](json& s) { s["step"] = "four"; })},
      {"negative cursor", resumed(), {kState, "cursor -1"}, state([](json& s) {
         s["cursor"] = -1;
       })},
      {"files elsewhere", resumed(), {kState, "'../x' is not a file name"}, state([](json& s) {
         s["files"][0]["name"] = "../x";
       })},
      {"no config", resumed(), {kNewest, "config of its state is the number 5"}, state([](json& s) {
         s["config"] = 5;
       })},
      {"no counts", resumed(), {kNewest, "extra.data_tokens"}, state([](json& s) {
         s["extra"] = json::object();
       })},
      {"negative counts", resumed(), {kNewest, "extra.skipped_steps", "-1"}, state([](json& s) {
         s["extra"]["skipped_steps"] = -1;
       })},
      {"impossible config", eval(kNewest), {kState, "model.hidden_size"}, state([](json& s) {
         s["config"]["model"]["hidden_size"] = 15;
       })},
      {"unknown key in the config", eval(kNewest), {kState, "colour"}, state([](json& s) {
         s["config"]["colour"] = "red";
       })},
      {"beyond memory", eval(kNewest), {kNewest, "its weights need"}, state([](json& s) {
         for (const char* key : {"hidden_size", "vocab_size"}) s["config"]["model"][key] = 1 << 16;
         s["config"]["model"]["num_hidden_layers"] = 4096;
       })},
      {"config of another model",
       eval(kNewest),
       {kNewest, "tensor", "this run needs"},
       state([](json& s) { s["config"]["model"]["vocab_size"] = 301; })},
  });
}

TEST_F(BadCheckpoints, OfAnotherRun) {
  expect_all_refused({
      {"another width",
       resumed({"model.hidden_size=32"}),
       {kNewest, "model.hidden_size = 32", "saved with 16"}},
      {"another depth",
       resumed({"model.num_hidden_layers=3"}),
       {kNewest, "model.num_hidden_layers = 3"}},
      {"another seed", resumed({"seed=4"}), {kNewest, "seed = 4", "saved with 3"}},
      {"another rule",
       resumed({"optimizer.rule=adamw", "optimizer.lr_multiplicative=null"}),
       {kNewest, "optimizer."}},
      {"another length of rows", resumed({"batch.seq_len=12"}), {kNewest, "batch.seq_len = 12"}},
      {"other formats",
       resumed({"precision.weights=fp32", "precision.compute=fp32", "precision.gradient=fp32"}),
       {kNewest, "precision."}},
      {"other data",
       resumed({"data.train=data/val_*.bin"}),
       {kNewest, "the shards are not those it was trained on: shard 1 was train_000000.bin of ",
        " and is val_000000.bin of ", "data.changed_shards=accept"}},
      {"beyond the end",
       resumed({"train.steps=3", "schedule.warmup_steps=0"}),
       {kNewest, "is at step 4", "step 3"}},
  });
}

TEST_F(BadCheckpoints, Use) {
  expect_all_refused({
      {"no validation", eval(kNewest, {"--data", "no_*.bin"}), {"no_*.bin: no such file"}},
      {"text for validation",
       eval(kNewest, {"--data", "corpus.txt"}),
       {"corpus.txt: header word 0"}},
      {"none in the config", eval(kNewest), {"no data.validation", "--data"}, state([](json& s) {
         s["config"]["data"]["validation"] = json::array();
       })},
      {"no tokens", eval(kNewest, {"--tokens", "0"}), {"--tokens: '0'"}},
      {"negative rows", eval(kNewest, {"--micro-batch-rows", "-1"}), {"--micro-batch-rows"}},
      {"prompt that is not UTF-8", generate("ab\xff"), {"the prompt is not valid UTF-8: byte 2"}},
      {"long prompt", generate(std::string(500, 'a')), {"the prompt has", "at most 24"}},
      {"second prompt that is long",
       generate("a", {"--prompt", std::string(500, 'a')}),
       {"--prompt number 2: the prompt has", "at most 24"}},
      {"negative temperature", generate("a", {"--temperature", "-0.5"}), {"--temperature: '-0.5'"}},
      {"temperature of NaN", generate("a", {"--temperature", "nan"}), {"--temperature: 'nan'"}},
      {"negative top_k", generate("a", {"--top-k", "-1"}), {"--top-k: '-1'"}},
      {"no new tokens", generate("a", {"--max-tokens", "0"}), {"--max-tokens: '0'"}},
      {"negative seed", generate("a", {"--seed", "-1"}), {"--seed: '-1'"}},
      {"output is there", export_to("exported"), {"exported: is not empty", "--overwrite"}},
      {"output is the run",
       export_to("runs/tiny", {"--overwrite"}),
       {"runs/tiny: contains", "not part of an export"}},
      {"output is the checkpoint",
       export_to(kNewest, {"--overwrite"}),
       {kNewest, "not part of an export"}},
      {"output is the shards",
       export_to("data", {"--overwrite"}),
       {"data: contains manifest.json"}},
      {"output is a file",
       export_to("config.json", {"--overwrite"}),
       {"config.json: exists and is not a directory"}},
      {"output below a file",
       export_to("config.json/new"),
       {"config.json: exists and is not a directory"}},
      {"output cannot be made", export_to("/proc/new"), {"/proc/new"}},
      {"output's staging place is taken",
       export_to("new"),
       {"new.tmp: contains notes.txt"},
       [](const Scene& s) {
         s.make_directory("new.tmp");
         s.write("new.tmp/notes.txt", "mine");
       }},
  });
}

}  // namespace
}  // namespace mpt::test
