// A small valid world for programs to fail in: text, tokenizers, shards, a trained run, an export.
//
// World makes it once, only through the program; each Scene is a copy to put one defect into.
// expect_refused() runs the program there and checks the requirements on every refusal: its own
// exit status, the culprit named on standard error, nothing on standard output, all earlier files
// unchanged, no new one.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "support/draws.h"
#include "support/files.h"
#include "support/run_program.h"
#include "support/temp_directory.h"

namespace mpt::test {

using Arguments = std::vector<std::string>;

inline void write_content(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A list in a list in a list …, too deep for recursion.
inline std::string deep_list() { return fmt::format("{:[<200000}{:]<200000}", "", ""); }

// --- world ---------------------------------------------------------------------------------------

// Words of random letters, so that there are enough pieces to learn.
inline void write_words(const std::string& path) {
  Draws draws(5);
  std::ofstream file(path);
  for (int document = 0; document < 120; ++document) {
    for (int word = 0; word < 20; ++word) {
      for (int64_t letters = 2 + draws.index(4); letters > 0; --letters)
        file << char('a' + draws.index(12));
      file << (word % 7 == 6 ? ".\n" : " ");
    }
    file << "\n\n";
  }
}

inline constexpr const char* kWorldConfig = R"({
  "name": "tiny",
  "seed": 3,
  "model": {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 300
  },
  "data": {"train": "data/train_*.bin", "validation": "data/val_*.bin", "tokenizer": "data/tokenizer.model"},
  "batch": {"seq_len": 24, "tokens_per_step": 96},
  "optimizer": {"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2},
  "train": {"steps": 4},
  "eval": {"every_steps": 0, "tokens": 100},
  "checkpoint": {"every_steps": 2},
  "device": {"threads": 1}
})";

class World {
 public:
  World() {
    write_words(directory_ / "corpus.txt");
    write_content(directory_ / "config.json", kWorldConfig);
    must({"tokenizer", "--input", "corpus.txt", "--vocab-size", "290", "--output", "tok.model"});
    must({"tokenizer", "--input", "corpus.txt", "--vocab-size", "320", "--output", "larger.model"});
    must({"tokenize", "--input", "corpus.txt", "--tokenizer", "tok.model", "--output", "data",
          "--validation-fraction", "0.2"});
    must({"--config", "config.json"});
    must({"export", "--checkpoint", "runs/tiny", "--output", "exported"});
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }

 private:
  void must(const Arguments& arguments) const {
    const ProgramResult result = run_program(arguments, {.cwd = directory_.path()});
    check(result.exit_code == 0, "{}: {}", arguments.front(), result.err);
  }

  TempDirectory directory_{memory_directory()};
};

// --- one case ------------------------------------------------------------------------------------

class Scene {
 public:
  explicit Scene(const World& world) {
    std::filesystem::copy(world.path(), path(), std::filesystem::copy_options::recursive);
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  std::string operator/(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] std::string read(const std::string& name) const {
    return content_of(directory_ / name);
  }

  void write(const std::string& name, std::string_view text) const {
    write_content(directory_ / name, text);
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(directory_ / name); }
  void make_directory(const std::string& name) const {
    std::filesystem::create_directories(directory_ / name);
  }
  void make_pipe(const std::string& name) const {
    check(::mkfifo((directory_ / name).c_str(), 0600) == 0, "no pipe {}: errno {}", name, errno);
  }
  void cut(const std::string& name, int64_t bytes) const {
    std::filesystem::resize_file(directory_ / name,
                                 std::filesystem::file_size(directory_ / name) - uintmax_t(bytes));
  }
  void flip_byte(const std::string& name, size_t at) const {
    std::string text = read(name);
    text.at(at) = char(text[at] ^ 1);
    write(name, text);
  }
  void put_bytes(const std::string& name, size_t at, std::string_view bytes) const {
    std::string text = read(name);
    check(at + bytes.size() <= text.size(), "{} ends before byte {}", name, at + bytes.size());
    std::ranges::copy(bytes, text.begin() + std::ptrdiff_t(at));
    write(name, text);
  }
  void change_json(const std::string& name,
                   const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json content = nlohmann::json::parse(read(name));
    change(content);
    write(name, content.dump(2));
  }
  // With the checksum that matches the content, as only a program can.
  void change_state(const std::string& name,
                    const std::function<void(nlohmann::json&)>& change) const {
    change_json(name, [&](nlohmann::json& content) {
      content.erase("checksum");
      change(content);
      content["checksum"] = hash_bytes(bytes_of(content.dump()));
    });
  }

 private:
  TempDirectory directory_{memory_directory()};
};

// Damages a scene before a verb sees it.
using Damage = std::function<void(const Scene&)>;

inline Damage without(const std::string& name) {
  return [=](const Scene& scene) { scene.remove(name); };
}

struct Refusal {
  std::string title;
  Arguments arguments;
  std::vector<std::string> says;            // each in the error message
  Damage damage = {};                       // done first
  std::vector<std::string> may_leave = {};  // beginnings of names of new files
  std::string out = {};                     // on standard output, where results are streamed
};

// --- changes made by a run of the program --------------------------------------------------------

// Returns everything below a directory, by name: its kind, and for files size and hash. `.lock`
// holds the ID of the process that ran last.
inline std::map<std::string, std::string> snapshot_of(const std::string& directory) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> entries;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().filename() == ".lock") continue;
    const std::string name = entry.path().lexically_relative(directory).string();
    if (entry.is_regular_file())
      entries[name] =
          fmt::format("file of {} bytes, {}", entry.file_size(), hash_file(entry.path().string()));
    else
      entries[name] = entry.is_directory() ? "directory" : "other";
  }
  return entries;
}

inline bool may_be_new(const std::string& name, const std::string& kind, const Refusal& refusal) {
  const auto begins = [&](const std::string& start) { return name.starts_with(start); };
  return kind == "directory" || std::ranges::any_of(refusal.may_leave, begins);
}

inline void expect_untouched(const Refusal& refusal,
                             const std::map<std::string, std::string>& before,
                             const std::map<std::string, std::string>& after) {
  for (const auto& [name, what] : before) {
    const auto found = after.find(name);
    EXPECT_EQ(found == after.end() ? "gone" : found->second, what) << name;
  }
  for (const auto& [name, what] : after)
    EXPECT_TRUE(before.contains(name) || may_be_new(name, what, refusal))
        << name << " is new: " << what;
}

inline void expect_message(const Refusal& refusal, const std::string& log) {
  const size_t begin = log.find("mpretrain: error: ");
  ASSERT_NE(begin, std::string::npos) << log;
  const std::string message = log.substr(begin);
  for (const std::string& part : refusal.says)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in\n" << message;
}

inline void expect_refused(const Scene& scene, const Refusal& refusal) {
  constexpr double kSeconds = 60;  // far more than any of them needs, even under a sanitizer
  SCOPED_TRACE(refusal.title + ": " + fmt::format("{}", fmt::join(refusal.arguments, " ")));
  if (refusal.damage) refusal.damage(scene);
  const auto before = snapshot_of(scene.path());
  const ProgramResult result =
      run_program(refusal.arguments, {.cwd = scene.path(), .timeout_s = kSeconds});
  EXPECT_FALSE(result.timed_out);
  EXPECT_FALSE(result.signalled) << "signal " << result.signal << "\n" << result.err;
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << result.exit_code << "\n"
                                                              << result.err;
  EXPECT_EQ(result.out, refusal.out);
  for (const char* fault :
       {"this is a bug", "Sanitizer", "runtime error",  // a sanitizer may exit with 1 too
        "json.exception", ".cc("})                      // text that only comes from libraries
    EXPECT_EQ(result.err.find(fault), std::string::npos) << result.err;
  expect_message(refusal, result.err);
  expect_untouched(refusal, before, snapshot_of(scene.path()));
}

class BadInput : public testing::Test {
 protected:
  static void SetUpTestSuite() { world_ = std::make_unique<World>(); }
  static void TearDownTestSuite() { world_.reset(); }

  static void expect_all_refused(const std::vector<Refusal>& refusals) {
    for (const Refusal& refusal : refusals) expect_refused(Scene(*world_), refusal);
  }

  inline static std::unique_ptr<World> world_;
};

}  // namespace mpt::test
