// The verbs import and convert, and train.init_from, as called by users: their results, messages
// and refusals.
#include "cli/bad_input_world.h"
#include "support/files.h"

namespace mpt::test {
namespace {

using nlohmann::json;

class WeightVerbs : public BadInput {
 protected:
  std::string run(const Arguments& arguments) {
    const ProgramResult result = run_program(arguments, {.cwd = scene_.path()});
    EXPECT_EQ(result.exit_code, 0) << fmt::format("{}\n", fmt::join(arguments, " ")) << result.err;
    errors_ = result.err;
    return result.out;
  }
  // Returns a file of an export of `checkpoint` to again/.
  json exported_again(const std::string& checkpoint, const Arguments& more,
                      const std::string& file) {
    Arguments all{"export", "--checkpoint", checkpoint, "--output", "again", "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    run(all);
    return json::parse(scene_.read("again/" + file));
  }
  Scene scene_{*world_};
  std::string errors_;
};

TEST_F(WeightVerbs, AnExportComesBack) {
  const std::string said = run({"import", "exported", "--output", "imported"});
  EXPECT_TRUE(has(said, "output           imported\n")) << said;
  EXPECT_TRUE(has(said, "vocabulary 300, context 24\n")) << said;
  EXPECT_TRUE(has(said, "weights          bf16, all kept exactly\n")) << said;
  EXPECT_TRUE(has(said, "tokenizer        tokenizer.model")) << said;
  run({"export", "--checkpoint", "imported", "--output", "again"});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"})
    EXPECT_EQ(scene_.read(std::string("again/") + name),
              scene_.read(std::string("exported/") + name))
        << name;
  const Arguments eval{"eval",   "--json",         "--tokens",    "100",
                       "--data", "data/val_*.bin", "--checkpoint"};
  const auto loss = [&](const std::string& checkpoint) {
    Arguments all = eval;
    all.push_back(checkpoint);
    return json::parse(run(all)).at("val_loss");
  };
  EXPECT_EQ(loss("imported"), loss("runs/tiny"));
  const auto text = [&](const std::string& checkpoint) {
    return run({"generate", "--checkpoint", checkpoint, "--prompt", "abc", "--max-tokens", "8"});
  };
  EXPECT_EQ(text("imported"), text("runs/tiny"));
  EXPECT_EQ(run_program({"checkpoint", "verify", "imported"}, {.cwd = scene_.path()}).exit_code, 0);
}

TEST_F(WeightVerbs, ConvertWritesAnotherFormat) {
  const std::string said = run({"convert", "--output", "narrow", "--weights", "block_fp8", "--set",
                                "precision.fp8_block_size=32", "runs/tiny"});
  EXPECT_TRUE(has(said, "checkpoint       runs/tiny/checkpoints/step_00000004, step 4\n")) << said;
  EXPECT_TRUE(has(said, "weights          block_fp8, ")) << said;
  EXPECT_TRUE(has(said, " changed by rounding, ")) << said;
  const json config = json::parse(scene_.read("narrow/config.json"));
  EXPECT_EQ(config.at("precision").at("fp8_block_size"), 32);
  EXPECT_EQ(config.at("name"), "narrow");
  EXPECT_EQ(scene_.read("narrow/tokenizer.model"), scene_.read("runs/tiny/tokenizer.model"));
  EXPECT_EQ(scene_.read("narrow/data_manifest.json"), scene_.read("runs/tiny/data_manifest.json"));
  run({"generate", "--checkpoint", "narrow", "--prompt", "abc", "--max-tokens", "2"});
  run({"eval", "--checkpoint", "narrow"});
}

TEST_F(WeightVerbs, AverageWritesTheMeanOfTheLastCheckpoints) {
  const std::string said = run({"checkpoint", "average", "runs/tiny", "--last", "2", "--output",
                                "mean", "--weights", "bf16"});
  EXPECT_TRUE(has(said,
                  "checkpoint       runs/tiny/checkpoints/step_00000002\n"
                  "checkpoint       runs/tiny/checkpoints/step_00000004\n"
                  "weights          bf16, "))
      << said;
  EXPECT_EQ(scene_.read("mean/tokenizer.model"), scene_.read("runs/tiny/tokenizer.model"));
  run({"generate", "--checkpoint", "mean", "--prompt", "abc", "--max-tokens", "2"});
  run({"eval", "--checkpoint", "mean"});
}

// With equal weights it is the plain mean; otherwise a different one.
TEST_F(WeightVerbs, AverageTakesADecay) {
  const auto weights = [&](const Arguments& more) {
    Arguments arguments{"checkpoint", "average", "runs/tiny", "--last", "2",
                        "--output",   "mean",    "--weights", "fp32",   "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run(arguments);
    run({"export", "--checkpoint", "mean", "--output", "of_mean", "--overwrite"});
    return scene_.read("of_mean/model.safetensors");
  };
  const std::string plain = weights({});
  EXPECT_EQ(weights({"--decay", "1"}), plain);
  EXPECT_NE(weights({"--decay", "0.25"}), plain);
}

// The first mean equals the weights, bit for bit: those of a run of one step.
TEST_F(WeightVerbs, AverageWritesTheEmaOfARun) {
  run({"--config", "config.json", "--set", "name=mean_of_one", "--set", "train.steps=1", "--set",
       "train.ema_decay=0.9"});
  const std::string said = run({"checkpoint", "average", "--ema", "runs/mean_of_one", "--output",
                                "ema", "--weights", "bf16"});
  EXPECT_TRUE(has(said,
                  "checkpoint       runs/mean_of_one/checkpoints/step_00000001\n"
                  "weights          bf16, all kept exactly"))
      << said;
  const auto tokens = [&](const std::string& checkpoint) {
    return run({"generate", "--checkpoint", checkpoint, "--prompt", "abc", "--max-tokens", "9"});
  };
  EXPECT_EQ(tokens("ema"), tokens("runs/mean_of_one"));
}

TEST_F(WeightVerbs, AnotherContextIsNamed) {
  const int64_t context =
      json::parse(scene_.read("exported/config.json")).at("max_position_embeddings").get<int64_t>();
  const std::string said =
      run({"import", "exported", "--output", "short", "--seq-len", std::to_string(context - 1)});
  EXPECT_TRUE(has(said, fmt::format("context {} of {}: export with --context {}\n", context - 1,
                                    context, context)))
      << said;
  const auto exported = [&](const Arguments& more) {
    return exported_again("short", more, "config.json").at("max_position_embeddings");
  };
  EXPECT_EQ(exported({}), context - 1);
  EXPECT_EQ(exported({"--context", std::to_string(context)}), context);
}

// From the source's settings; --bos and --no-bos override them.
TEST_F(WeightVerbs, BosIsThatOfTheSource) {
  scene_.change_json("exported/tokenizer_config.json",
                     [](json& settings) { settings["add_bos_token"] = true; });
  run({"import", "exported", "--output", "begun"});
  const auto tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"generate", "--checkpoint", "begun", "--prompt",
                                 "abc",      "--max-tokens", "1",     "--temperature",
                                 "0",        "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return json::parse(run(all)).at("prompt_tokens").get<int64_t>();
  };
  EXPECT_EQ(tokens({}), tokens({"--bos"}));
  EXPECT_EQ(tokens({}), tokens({"--no-bos"}) + 1);
  const auto add_bos = [&](const Arguments& more) {
    return exported_again("begun", more, "tokenizer_config.json").at("add_bos_token");
  };
  EXPECT_EQ(add_bos({}), true);
  EXPECT_EQ(add_bos({"--no-bos"}), false);
}

TEST_F(WeightVerbs, TrainingStartsFromImportedWeights) {
  run({"import", "exported", "--output", "imported"});
  run({"--config", "config.json", "--set", "name=more", "--set", "train.init_from=imported",
       "--set", "precision.weights=nvfp4"});
  EXPECT_TRUE(has(errors_,
                  "start: from the weights of imported/checkpoints/step_00000000 (step 0, "
                  "bf16, hash "))
      << errors_;
  const json config = json::parse(scene_.read("runs/more/config.json"));
  EXPECT_EQ(config.at("train").at("init_from"), "imported");
  scene_.remove("imported");
  run({"--config", "config.json", "--set", "name=more", "--set", "train.init_from=imported",
       "--set", "precision.weights=nvfp4", "--set", "train.steps=5", "--resume", "latest"});
  EXPECT_TRUE(has(errors_, "start: continuing from runs/more/checkpoints/step_00000004"))
      << errors_;
}

TEST_F(WeightVerbs, APlanKnowsWhereWeightsComeFrom) {
  const json missing = json::parse(run({"plan", "--config", "config.json", "--set", "name=more",
                                        "--set", "train.init_from=nowhere", "--json"}));
  EXPECT_EQ(missing.at("ready"), false);
  EXPECT_EQ(missing.at("problems"), json::array({"nowhere: no such checkpoint or run directory"}));
}

// Damage: changes a key of config.json in the directory to import.
std::function<void(const Scene&)> with_key(const std::string& key, const json& value) {
  return [=](const Scene& scene) {
    scene.change_json("exported/config.json", [&](json& keys) { keys[key] = value; });
  };
}

TEST_F(WeightVerbs, ImportRefuses) {
  const Arguments import{"import", "exported", "--output", "out"};
  expect_all_refused({
      {"no directory", {"import", "missing", "--output", "out"}, {"missing: no such directory"}},
      {"no model", {"import", "data", "--output", "out"}, {"data: has no config.json"}},
      {"a run", {"import", "exported", "--output", "runs/tiny"}, {"runs/tiny: is not empty"}},
      {"replacing a run",
       {"import", "exported", "--output", "runs/tiny", "--overwrite"},
       {"runs/tiny: contains"}},
      {"an ignored key that is not there",
       {"import", "exported", "--output", "out", "--ignore", "foo"},
       {"foo: --ignore names this key, which is not there"}},
      {"another activation",
       import,
       {"exported/config.json: hidden_act: expected \"silu\""},
       with_key("hidden_act", "gelu")},
      {"an unknown key",
       import,
       {"exported/config.json: num_experts: unknown key", "--ignore num_experts"},
       with_key("num_experts", 8)},
      {"another vocabulary",
       import,
       {"tensor 'model.embed_tokens.weight' is BF16 [300, 16]; expected BF16 [301, 16]"},
       with_key("vocab_size", 301)},
      {"deep nesting",
       import,
       {"exported/config.json:1: nested deeper than"},
       [](const Scene& scene) { scene.write("exported/config.json", deep_list()); }},
      {"a pipe",
       import,
       {"exported/config.json"},
       [](const Scene& scene) {
         scene.remove("exported/config.json");
         scene.make_pipe("exported/config.json");
       }},
      {"a cut file",
       import,
       {"exported/model.safetensors"},
       [](const Scene& scene) { scene.cut("exported/model.safetensors", 1); }},
      {"a tokenizer with more pieces",
       import,
       {"exported/tokenizer.model: has 320 pieces", "--no-tokenizer"},
       [](const Scene& scene) {
         scene.write("exported/tokenizer.model", scene.read("larger.model"));
       }},
      {"a format that is none",
       {"import", "exported", "--output", "out", "--weights", "int8"},
       {"--weights: 'int8' is not one of: fp32, bf16"}},
  });
}

TEST_F(WeightVerbs, ConvertRefuses) {
  expect_all_refused({
      {"no format", {"convert", "runs/tiny", "--output", "out"}, {"--weights is required"}},
      {"no checkpoint",
       {"convert", "data", "--output", "out", "--weights", "fp32"},
       {"data: neither a checkpoint"}},
      {"another section",
       {"convert", "runs/tiny", "--output", "out", "--weights", "fp32", "--set", "seed=2"},
       {"--set seed=2: only keys of the precision section"}},
      {"a damaged checkpoint",
       {"convert", "runs/tiny/checkpoints/step_00000004", "--output", "out", "--weights", "fp32"},
       {"was altered"},
       [](const Scene& scene) {
         scene.flip_byte("runs/tiny/checkpoints/step_00000004/rank_00000_of_00001.safetensors",
                         5000);
       }},
  });
}

TEST_F(WeightVerbs, InitFromRefuses) {
  const auto train = [](const std::string& from, const std::string& set = "seed=1") {
    return Arguments{"--config", "config.json",
                     "--set",    "name=more",
                     "--set",    "train.init_from=" + from,
                     "--set",    set};
  };
  expect_all_refused({
      {"nothing there", train("nowhere"), {"nowhere: no such checkpoint or run directory"}},
      {"another model",
       train("runs/tiny", "model.num_hidden_layers=3"),
       {"train.init_from: runs/tiny/checkpoints/step_00000004 has another model than this run",
        "model.num_hidden_layers is 2 there and 3 here"}},
      {"an empty name", train(""), {"train.init_from: must not be empty"}},
      {"another tokenizer",
       train("runs/tiny"),
       {"another one: its tokens are not those of the weights"},
       [](const Scene& scene) {
         scene.write("runs/tiny/tokenizer.model", scene.read("larger.model"));
       }},
  });
}

}  // namespace
}  // namespace mpt::test
