// Destinations of results: every verb that writes, to everything a path can lead to.
#include <memory>

#include "cli/bad_input_world.h"

namespace mpt::test {
namespace {

// A shell command for a verb; OUTPUT stands for its output path.
struct Writer {
  const char* title;
  const char* ending;  // of a name that it accepts
  const char* command;
};

constexpr Writer kFileWriters[] = {
    {"details", "", "$MPT eval --checkpoint runs/tiny --tasks piqa=tasks.jsonl --details OUTPUT"},
    {"report", "", "$MPT report runs/tiny --output OUTPUT"},
    {"tokenizer", ".model",
     "$MPT tokenizer --input corpus.txt --vocab-size 290 --overwrite --output OUTPUT"},
    {"gguf", ".gguf",
     "$MPT export --checkpoint runs/tiny --format gguf --overwrite --output OUTPUT"}};

constexpr Writer kDirectoryWriters[] = {
    {"export", "", "$MPT export --checkpoint $S/runs/tiny --output OUTPUT"},
    {"import", "", "$MPT import $S/exported --output OUTPUT"},
    {"convert", "", "$MPT convert $S/runs/tiny --weights fp32 --output OUTPUT"},
    {"average", "", "$MPT checkpoint average $S/runs/tiny --last 2 --output OUTPUT"},
    {"toy", "", "$MPT toy --seeds 1 --steps 2 --output OUTPUT"},
    {"tokenize", "",
     "$MPT tokenize --input $S/corpus.txt --tokenizer $S/tok.model --output OUTPUT"}};

std::string with_output(const Writer& writer, const std::string& output) {
  std::string command = writer.command;
  return command.replace(command.find("OUTPUT"), 6, output);
}

class Output : public BadInput {
 protected:
  Output() {
    scene_.write("tasks.jsonl", R"({"goal": "abc", "sol1": "d", "sol2": "e", "label": 0})");
  }

  ProgramResult shell(const std::string& script) const {
    return run_program({"-c", script}, {.cwd = scene_.path(),
                                        .env = {{"MPT", program_to_test()}, {"S", scene_.path()}},
                                        .program = "/bin/sh"});
  }
  void works(const Writer& writer, const std::string& script) const {
    const ProgramResult result = shell(script);
    EXPECT_EQ(result.exit_code, 0) << writer.title << ": " << script << "\n" << result.err;
  }
  void refused(const Writer& writer, const std::string& script, const std::string& says) const {
    const ProgramResult result = shell(script);
    EXPECT_EQ(result.exit_code, 1) << writer.title << ": " << script << "\n" << result.err;
    EXPECT_TRUE(has(result.err, says)) << writer.title << ": " << script << "\n" << result.err;
  }
  // A script runs where it may mount; false if that is not allowed.
  static std::string mounting(const std::string& script) {
    return "unshare --mount --map-root-user sh -ec '" + script + "'";
  }
  [[nodiscard]] bool may_mount() const {
    return shell(mounting("mkdir may_mount; mount -t tmpfs none may_mount")).exit_code == 0;
  }
  [[nodiscard]] std::vector<std::string> names_in(const std::string& directory) const {
    std::vector<std::string> names = disk.list_directory(scene_ / directory);
    std::erase(names, ".lock");
    return names;
  }

  Scene scene_{*world_};
};

class FileOutput : public Output {
 protected:
  // Returns the content that each writes to a missing file.
  std::string expected(const Writer& writer) {
    const std::string name = std::string("expected") + writer.ending;
    scene_.remove(name);
    works(writer, with_output(writer, name));
    return scene_.read(name);
  }
};

TEST_F(FileOutput, ALinkIsFollowed) {
  for (const Writer& writer : kFileWriters) {
    const std::string content = expected(writer), link = std::string("link") + writer.ending;
    for (const char* target : {"expected", "missing"}) {
      const std::string file = std::string(target) + writer.ending;
      works(writer, "ln -s " + file + " first; ln -s first " + link + "; " +
                        with_output(writer, link) + " && test -L " + link + " && rm first " + link);
      EXPECT_EQ(scene_.read(file), content) << writer.title;
    }
    scene_.remove(std::string("missing") + writer.ending);
  }
}

TEST_F(FileOutput, APipeTakesTheResult) {
  for (const Writer& writer : kFileWriters) {
    const std::string content = expected(writer), pipe = std::string("pipe") + writer.ending;
    works(writer, "mkfifo " + pipe + "; cat " + pipe + " >got & sleep 0.2; " +
                      with_output(writer, pipe) + " && wait && test -p " + pipe);
    EXPECT_EQ(scene_.read("got"), content) << writer.title;
    refused(writer, with_output(writer, pipe), "no program reads this pipe");
    scene_.remove(pipe);
  }
}

TEST_F(FileOutput, ADeviceIsWrittenTo) {
  for (const Writer& writer : kFileWriters) {
    const std::string link = std::string("device") + writer.ending;
    works(writer,
          "ln -s /dev/null " + link + "; " + with_output(writer, link) + " && test -L " + link);
    works(writer, "test -c /dev/null");
    refused(writer, "ln -sf /dev/full " + link + "; " + with_output(writer, link),
            "No space left on device");
    scene_.remove(link);
  }
}

TEST_F(FileOutput, ADescriptorIsWrittenFromWhereItIs) {
  for (const Writer& writer : kFileWriters) {
    const std::string content = expected(writer), link = std::string("out") + writer.ending;
    works(writer, "ln -s /dev/fd/5 " + link + "; (echo before >&5; " + with_output(writer, link) +
                      " >/dev/null && echo after >&5) 5>got");
    EXPECT_EQ(scene_.read("got"), "before\n" + content + "after\n") << writer.title;
    works(writer, "(echo before >&5; " + with_output(writer, link) +
                      " >/dev/null && echo after >&5) 5>&1 | cat >got");
    EXPECT_EQ(scene_.read("got"), "before\n" + content + "after\n") << writer.title;
    scene_.remove(link);
  }
}

TEST_F(FileOutput, StandardOutputThatIsAFileIsWrittenTo) {
  for (const Writer& writer : kFileWriters) {
    const std::string content = expected(writer);
    works(writer, with_output(writer, "/dev/stdout") + " >got && ! test -e /dev/stdout.model");
    EXPECT_TRUE(has(scene_.read("got"), content)) << writer.title;
  }
}

TEST_F(FileOutput, ADirectoryOrALoopOfLinksIsRefused) {
  for (const Writer& writer : kFileWriters) {
    const std::string name = std::string("there") + writer.ending;
    refused(writer, "mkdir " + name + "; " + with_output(writer, name), "is a directory");
    refused(writer,
            "rmdir " + name + "; ln -s " + name + " " + name + "; " + with_output(writer, name),
            " links");
    scene_.remove(name);
  }
}

TEST_F(FileOutput, AMountedFileIsWrittenTo) {
  if (!may_mount()) GTEST_SKIP() << "nothing can be mounted here";
  for (const Writer& writer : kFileWriters) {
    const std::string content = expected(writer), name = std::string("mounted") + writer.ending;
    works(writer, mounting("cp expected" + std::string(writer.ending) +
                           " outside; echo more >>outside; : >" + name + "; mount --bind outside " +
                           name + "; " + with_output(writer, name)));
    EXPECT_EQ(scene_.read("outside"), content) << writer.title;
    EXPECT_EQ(scene_.read(name), "") << writer.title;  // below the mount
    scene_.remove(name);
  }
}

TEST_F(FileOutput, AReadOnlyPlaceIsRefusedByName) {
  if (!may_mount()) GTEST_SKIP() << "nothing can be mounted here";
  for (const Writer& writer : kFileWriters)
    refused(writer,
            mounting("mkdir -p sealed; mount -t tmpfs -o ro none sealed; " +
                     with_output(writer, std::string("sealed/new") + writer.ending)),
            "sealed/new" + std::string(writer.ending));
}

class DirectoryOutput : public Output {
 protected:
  std::vector<std::string> expected(const Writer& writer) {
    scene_.remove("expected");
    works(writer, with_output(writer, "expected"));
    return names_in("expected");
  }
};

TEST_F(DirectoryOutput, OneThatExistsIsFilled) {
  for (const Writer& writer : kDirectoryWriters) {
    const auto names = expected(writer);
    works(writer, "mkdir there; ls -id there >before; " + with_output(writer, "there/") +
                      " && ls -id there | cmp before && rm before");
    EXPECT_EQ(names_in("there"), names) << writer.title;
    works(writer, "mkdir here; cd here; " + with_output(writer, "."));
    EXPECT_EQ(names_in("here"), names) << writer.title;
    works(writer, "ls -id here >before; cd here; " + with_output(writer, ".") +
                      " --overwrite && cd .. && ls -id here | cmp before && rm before");
    EXPECT_EQ(names_in("here"), names) << writer.title;
    scene_.remove("there");
    scene_.remove("here");
  }
}

TEST_F(DirectoryOutput, ALinkIsFollowed) {
  for (const Writer& writer : kDirectoryWriters) {
    const auto names = expected(writer);
    works(writer,
          "mkdir disk; ln -s disk link; " + with_output(writer, "link") + " && test -L link");
    EXPECT_EQ(names_in("disk"), names) << writer.title;
    works(writer, "rm -r disk; " + with_output(writer, "link") + " && test -L link");
    EXPECT_EQ(names_in("disk"), names) << writer.title << ", dangling";
    scene_.remove("disk");
    scene_.remove("link");
  }
}

TEST_F(DirectoryOutput, AMountPointIsFilledAndFilledAgain) {
  if (!may_mount()) GTEST_SKIP() << "nothing can be mounted here";
  for (const Writer& writer : kDirectoryWriters) {
    const auto names = expected(writer);
    works(writer, mounting("mkdir volume; mount -t tmpfs none volume; mkdir volume/lost+found; " +
                           with_output(writer, "volume") + "; " + with_output(writer, "volume") +
                           " --overwrite; rmdir volume/lost+found; cp -r volume copy"));
    EXPECT_EQ(names_in("copy"), names) << writer.title;
    scene_.remove("volume");
    scene_.remove("copy");
  }
}

TEST_F(DirectoryOutput, WhatIsNoDirectoryIsRefused) {
  for (const Writer& writer : kDirectoryWriters) {
    refused(writer, ": >file; " + with_output(writer, "file"), "ot a directory");
    refused(writer, "mkfifo pipe; " + with_output(writer, "pipe"), "ot a directory");
    refused(writer, with_output(writer, "/dev/null"), "/dev/null");
    refused(writer, "ln -s loop loop; " + with_output(writer, "loop"), "loop");
    for (const char* name : {"file", "pipe", "loop"}) scene_.remove(name);
  }
}

TEST_F(DirectoryOutput, AFullOrReadOnlyPlaceIsRefusedAndLeftEmpty) {
  if (!may_mount()) GTEST_SKIP() << "nothing can be mounted here";
  for (const Writer& writer : kDirectoryWriters) {
    refused(writer,
            mounting("mkdir -p sealed; mount -t tmpfs -o ro none sealed; " +
                     with_output(writer, "sealed/new")),
            "sealed");
    refused(writer,
            mounting("mkdir -p sealed; mount -t tmpfs -o ro none sealed; " +
                     with_output(writer, "sealed")),
            "sealed");
    refused(writer,
            mounting("mkdir -p small; mount -t tmpfs -o size=4k none small; rc=0; " +
                     with_output(writer, "small") + " || rc=$?; ls small >left; exit $rc"),
            "No space left on device");
    const bool resumes = std::string(writer.title) == "tokenize";  // and keeps what it has
    EXPECT_TRUE(resumes || scene_.read("left").empty()) << writer.title;
  }
}

// A run's directory is created in that of --set output_dir, which may be any of these.
TEST_F(DirectoryOutput, ARunIsWrittenInto) {
  const Writer run{
      "run", "", "cd $S && $MPT --config config.json --set train.steps=2 --set output_dir=OUTPUT"};
  works(run, "mkdir disk; ln -s disk link; " + with_output(run, "link"));
  EXPECT_TRUE(disk.exists(scene_ / "disk/tiny/checkpoints/step_00000002/state.json"));
  works(run, with_output(run, ".") + "; test -e tiny/report.json");
  refused(run, with_output(run, "corpus.txt"), "corpus.txt");
  refused(run, with_output(run, "/dev/null"), "/dev/null");
  if (!may_mount()) GTEST_SKIP() << "nothing can be mounted here";
  works(run, mounting("mkdir volume; mount -t tmpfs none volume; " + with_output(run, "volume") +
                      "; test -e volume/tiny/report.json"));
  refused(run,
          mounting("mkdir sealed; mount -t tmpfs -o ro none sealed; " + with_output(run, "sealed")),
          "sealed");
  refused(
      run,
      mounting("mkdir small; mount -t tmpfs -o size=8k none small; " + with_output(run, "small")),
      "No space left on device");
}

}  // namespace
}  // namespace mpt::test
