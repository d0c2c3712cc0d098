// tokenize_corpus: its output, independence of threads, validation split, refusals, clean failure.
#include "text/corpus/tokenize.h"

#include <atomic>
#include <cmath>
#include <map>
#include <set>

#include <sys/resource.h>

#include "core/io/directory_lock.h"
#include "data/data_files.h"
#include "data/document_index.h"
#include "support/fault_file_system.h"
#include "text/corpus/ordered_pipeline.h"
#include "text/corpus/split_writer.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;
using test::write_text;

// 200 documents of one to sixty words.
std::vector<std::string> sample_documents() {
  std::vector<std::string> documents;
  for (int i = 0; i < 200; ++i) {
    const std::string text = test::generated_text(static_cast<uint32_t>(1000 + i), 1 + i * 7 % 60);
    documents.push_back(text.substr(0, text.size() - 1));
  }
  return documents;
}

std::string write_corpus(const std::string& directory) {
  std::string lines;
  for (const std::string& text : sample_documents())
    lines +=
        nlohmann::json{{"url", "https://a.org"}, {"text", text}, {"timestamp", "2019"}}.dump() +
        "\n";
  return write_text(directory + "/corpus.json.gz", test::gzip(lines));
}

TokenizeOptions sample_options(const std::string& directory) {
  return {.corpus = {.patterns = {write_corpus(directory)}},
          .tokenizer = test::small_tokenizer(),
          .output = directory + "/out",
          .tokens_per_shard = 1000,
          .validation_fraction = 0.2,
          .seed = 5,
          .threads = 2};
}

// Excludes the lock, which stays and holds a process ID.
std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (const std::string name = entry.path().filename().string(); name != kLockFile)
      files[name] = test::read_text(entry.path().string());
  return files;
}

std::vector<int32_t> tokens_of(const std::string& directory, const ManifestSplit& split) {
  std::vector<int32_t> tokens;
  for (const ManifestShard& listed : split.shards) {
    const TokenShard shard(directory + "/" + listed.file);
    std::vector<int32_t> part(static_cast<size_t>(shard.tokens()));
    shard.read(0, part, 320);
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

// Returns the documents of a stream, split after each EOS.
std::vector<std::vector<int32_t>> split_at_eos(const std::vector<int32_t>& tokens) {
  std::vector<std::vector<int32_t>> documents;
  for (bool begins = true; const int32_t token : tokens) {
    if (begins) documents.emplace_back();
    documents.back().push_back(token);
    begins = token == 2;
  }
  return documents;
}

TEST(Tokenize, WritesEveryDocumentOnceInOrder) {
  const TokenizeOptions options = sample_options(fresh_directory());
  const TokenizeResult result = tokenize_corpus(options);
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const auto& splits = result.manifest.splits;
  auto train = split_at_eos(tokens_of(options.output, splits.at("train")));
  auto validation = split_at_eos(tokens_of(options.output, splits.at("val")));
  EXPECT_EQ(std::ssize(train), splits.at("train").documents);
  EXPECT_EQ(std::ssize(validation), splits.at("val").documents);
  EXPECT_EQ(train.size() + validation.size(), 200u);
  size_t t = 0, v = 0;
  for (const std::string& text : sample_documents()) {
    std::vector<int32_t> expected = tokenizer.encode(text);
    expected.push_back(2);
    if (t < train.size() && train[t] == expected) {
      ++t;
    } else {
      ASSERT_LT(v, validation.size());
      ASSERT_EQ(validation[v++], expected);
    }
  }
  EXPECT_GT(v, 15u);  // 40 expected, standard deviation 5.7
  EXPECT_LT(v, 70u);
}

TEST(Tokenize, ManifestTellsTheTruth) {
  const TokenizeOptions options = sample_options(fresh_directory());
  const TokenizeResult result = tokenize_corpus(options);
  const Manifest manifest = Manifest::load(options.output + "/manifest.json");
  EXPECT_NO_THROW(manifest.verify_contents(options.output));
  EXPECT_EQ(manifest.tokenizer.vocab_size, 320);
  EXPECT_EQ(manifest.tokenizer.hash,
            Tokenizer::load(options.output + "/" + manifest.tokenizer.file).hash());
  EXPECT_EQ(manifest.tokenizer.eos_id, 2);
  int64_t tokens = 0, bytes = 0, expected_bytes = 0;
  for (const auto& [name, split] : manifest.splits) {
    const std::vector<int32_t> stream = tokens_of(options.output, split);
    EXPECT_EQ(std::ssize(stream), split.tokens);
    std::map<int32_t, double> counts;
    for (const int32_t token : stream) ++counts[token];
    double entropy = 0;
    for (const auto& [token, count] : counts)
      entropy -= count / double(stream.size()) * std::log(count / double(stream.size()));
    EXPECT_NEAR(split.unigram_entropy_nats, entropy, 1e-12 * 320);
    tokens += split.tokens;
    bytes += split.text_bytes;
    for (size_t i = 0; i + 1 < split.shards.size(); ++i) EXPECT_EQ(split.shards[i].tokens, 1000);
  }
  for (const std::string& text : sample_documents()) expected_bytes += std::ssize(text);
  EXPECT_EQ(bytes, expected_bytes);
  EXPECT_EQ(result.tokens, tokens);
  EXPECT_EQ(result.corpus.documents, 200);
  EXPECT_DOUBLE_EQ(result.bytes_per_token, double(bytes) / double(tokens));
  EXPECT_GT(result.tokens_per_second, 0);
  EXPECT_EQ(manifest.options.at("seed"), 5);
}

TEST(Tokenize, IndexNamesTheDocuments) {
  const TokenizeOptions options = sample_options(fresh_directory());
  const ManifestSplit split = tokenize_corpus(options).manifest.splits.at("train");
  ASSERT_GT(split.shards.size(), 3u);
  const auto documents = split_at_eos(tokens_of(options.output, split));
  std::vector<int64_t> starts;
  int64_t base = 0;
  for (const ManifestShard& shard : split.shards) {
    const DocumentIndex index(index_path_of(options.output + "/" + shard.file), shard.tokens);
    for (int64_t i = 0; i < index.documents(); ++i) starts.push_back(base + index.start(i));
    base += shard.tokens;
  }
  ASSERT_EQ(starts.size(), documents.size());
  int64_t position = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    EXPECT_EQ(starts[i], position);
    position += std::ssize(documents[i]);
  }
}

TEST(Tokenize, BytesDoNotDependOnThreads) {
  const std::string directory = fresh_directory();
  TokenizeOptions options = sample_options(directory);
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += test::generated_text(uint32_t(i), 3000) + "\n\n";  // several batches
  options.corpus.patterns.push_back(write_text(directory + "/more.txt", text));
  options.corpus.max_document_bytes = 5000;
  options.tokens_per_shard = 30'000;
  options.threads = 1;
  options.output = directory + "/one";
  tokenize_corpus(options);
  options.threads = 3;
  options.output = directory + "/three";
  tokenize_corpus(options);
  const auto one = files_in(directory + "/one"), three = files_in(directory + "/three");
  EXPECT_GT(one.size(), 10u);
  EXPECT_TRUE(one == three);
}

TEST(Tokenize, MarksAreOptional) {
  TokenizeOptions options = sample_options(fresh_directory());
  options.validation_fraction = 0;
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  std::vector<int32_t> plain, both;
  for (const std::string& text : sample_documents()) {
    const auto ids = tokenizer.encode(text);
    plain.insert(plain.end(), ids.begin(), ids.end());
    both.push_back(1);
    both.insert(both.end(), ids.begin(), ids.end());
    both.push_back(2);
  }
  options.append_eos = false;
  const TokenizeResult without = tokenize_corpus(options);
  EXPECT_EQ(tokens_of(options.output, without.manifest.splits.at("train")), plain);
  EXPECT_EQ(without.manifest.splits.count("val"), 0u);
  options.append_eos = options.prepend_bos = options.overwrite = true;
  EXPECT_EQ(tokens_of(options.output, tokenize_corpus(options).manifest.splits.at("train")), both);
}

TEST(Tokenize, ShardsOfOneToken) {
  TokenizeOptions options = sample_options(fresh_directory());
  options.corpus.patterns = {write_text(options.output + ".txt", "kalo")};
  options.validation_fraction = 0;
  options.tokens_per_shard = 1;
  const ManifestSplit split = tokenize_corpus(options).manifest.splits.at("train");
  EXPECT_EQ(std::ssize(split.shards), split.tokens);
  EXPECT_EQ(tokens_of(options.output, split).back(), 2);
}

TEST(Tokenize, EarlierOutputIsRefusedUnlessOverwritten) {
  TokenizeOptions options = sample_options(fresh_directory());
  tokenize_corpus(options);
  const auto before = files_in(options.output);
  expect_error([&] { tokenize_corpus(options); }, {options.output, "earlier run"});
  EXPECT_TRUE(files_in(options.output) == before);
  std::filesystem::remove(options.output + "/manifest.json");  // as after a killed run
  expect_error([&] { tokenize_corpus(options); }, {options.output, "earlier run"});
  write_text(options.output + "/notes.md", "mine");
  options.overwrite = true;
  options.tokens_per_shard = 100'000;
  tokenize_corpus(options);
  const auto after = files_in(options.output);
  EXPECT_EQ(after.size(),
            7u);  // two shards, two indices, tokenizer, manifest, notes: nothing of the first run
  EXPECT_EQ(after.count("notes.md"), 1u);
  EXPECT_EQ(after.count("train_000001.bin"), 0u);
}

TEST(Tokenize, AnotherTokenizerInTheDirectoryIsRefused) {
  TokenizeOptions options = sample_options(fresh_directory());
  const std::string text = write_text(options.output + ".txt", test::generated_text(77, 3000));
  std::filesystem::create_directories(options.output);
  train_tokenizer({.corpus = {.patterns = {text}},
                   .output = options.output + "/tokenizer.model",
                   .vocab_size = 300});
  expect_error([&] { tokenize_corpus(options); }, {"tokenizer.model", "is not the tokenizer"});
  options.tokenizer = options.output + "/tokenizer.model";
  const std::string other = options.output + "/tokenizer.json";
  std::filesystem::copy(MPT_SOURCE_DIR "/tests/golden/subword/gpt2.json", other);
  expect_error([&] { tokenize_corpus(options); }, {other, "is not the tokenizer"});
  ASSERT_TRUE(std::filesystem::remove(other));
  EXPECT_EQ(tokenize_corpus(options).manifest.tokenizer.vocab_size, 300);
}

TEST(Tokenize, FailuresLeaveEarlierShards) {
  TokenizeOptions options = sample_options(fresh_directory());
  tokenize_corpus(options);
  const auto before = files_in(options.output);
  options.corpus.patterns = {
      write_text(options.output + "_bad.jsonl", "{\"text\": \"kalo\"}\n{broken\n")};
  options.overwrite = true;
  expect_error([&] { tokenize_corpus(options); }, {"_bad.jsonl:2:"});
  EXPECT_TRUE(files_in(options.output) == before);
}

TEST(Tokenize, WhatAKilledRunLeftIsRemoved) {
  TokenizeOptions options = sample_options(fresh_directory());
  const std::filesystem::path left =
      std::filesystem::path(options.output) / ".mpretrain_unfinished";
  std::filesystem::create_directories(left);
  write_text((left / "train_000077.bin").string(), "half");
  tokenize_corpus(options);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(files_in(options.output).count("train_000077.bin"), 0u);
}

TEST(Tokenize, FailuresLeaveNoShards) {
  const std::string directory = fresh_directory();
  TokenizeOptions options = sample_options(directory);
  std::string lines;
  for (const std::string& text : sample_documents())
    lines += nlohmann::json{{"text", text}}.dump() + "\n";
  options.corpus.patterns = {write_text(directory + "/a.jsonl", lines + "{broken\n")};
  expect_error([&] { tokenize_corpus(options); }, {"a.jsonl:201:"});
  EXPECT_TRUE(files_in(options.output).empty());
  options.corpus.on_bad_document = OnBadDocument::kSkip;
  const TokenizeResult result = tokenize_corpus(options);
  EXPECT_EQ(result.corpus.bad, 1);
  EXPECT_EQ(result.corpus.documents, 200);
}

TEST(Tokenize, EmptySplitsAreErrors) {
  TokenizeOptions options = sample_options(fresh_directory());
  options.corpus.patterns = {write_text(options.output + ".txt", "kalo\n\nmiter\n")};
  options.validation_fraction = 1e-9;
  expect_error([&] { tokenize_corpus(options); },
               {"none of the 2 documents", "val", "--validation-fraction 1e-09"});
  options.validation_fraction = 1 - 1e-9;
  expect_error([&] { tokenize_corpus(options); }, {"none of the 2 documents", "train"});
  EXPECT_TRUE(files_in(options.output).empty());
  options.corpus.patterns = {write_text(options.output + ".txt", "\n \n")};
  expect_error([&] { tokenize_corpus(options); }, {"no documents"});
}

TEST(Tokenize, BadOptionsAreErrors) {
  const std::string directory = fresh_directory();
  const TokenizeOptions good = sample_options(directory);
  const auto refuse = [&](const std::function<void(TokenizeOptions&)>& change,
                          const std::vector<std::string>& parts) {
    TokenizeOptions options = good;
    change(options);
    expect_error([&] { tokenize_corpus(options); }, parts);
  };
  refuse([](auto& o) { o.tokens_per_shard = 0; }, {"tokens_per_shard is 0"});
  refuse([](auto& o) { o.tokens_per_shard = int64_t{1} << 31; },
         {"tokens_per_shard is 2147483648"});
  refuse([](auto& o) { o.validation_fraction = 1; }, {"validation_fraction is 1"});
  refuse([](auto& o) { o.validation_fraction = -0.1; }, {"validation_fraction is -0.1"});
  refuse([](auto& o) { o.validation_fraction = std::nan(""); }, {"validation_fraction is nan"});
  refuse([](auto& o) { o.threads = -2; }, {"threads is -2"});
  refuse([](auto& o) { o.output = ""; }, {"no output directory"});
  refuse([&](auto& o) { o.output = good.corpus.patterns[0]; },
         {"corpus.json.gz", "is not a directory"});
  refuse([&](auto& o) { o.output = good.corpus.patterns[0] + "/deeper"; }, {"is not a directory"});
  refuse([](auto& o) { o.tokenizer = "/no/such.model"; }, {"/no/such.model"});
  refuse([&](auto& o) { o.corpus.patterns = {directory + "/no*"}; }, {"no*"});
  EXPECT_FALSE(std::filesystem::exists(good.output));
}

// A few documents, so that every operation of a tokenization can fail in turn.
TokenizeOptions few_documents(const std::string& directory) {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += nlohmann::json{{"text", sample_documents()[size_t(i)]}}.dump() + "\n";
  return {.corpus = {.patterns = {write_text(directory + "/few.jsonl", lines)}},
          .tokenizer = test::small_tokenizer(),
          .output = directory + "/out",
          .tokens_per_shard = 400,
          .validation_fraction = 0.3,
          .seed = 5,
          .threads = 1};
}

// Whichever operation fails, over an earlier output: the error is reported, a manifest names only
// complete files that exist, and the next run succeeds.
TEST(Tokenize, EveryOperationMayFail) {
  for (const test::Fault fault : {test::Fault::kShortWrite, test::Fault::kStop}) {
    int64_t n = 0;
    for (bool broke = true; broke;) {
      SCOPED_TRACE(fmt::format("{} at operation {}", name_of(fault), ++n));
      TokenizeOptions options = few_documents(fresh_directory());
      tokenize_corpus(options);
      options.overwrite = true;
      test::FaultFileSystem faulty(posix_file_system());
      faulty.fail_at(n, fault);
      bool thrown = false;
      try {
        tokenize_corpus(options, faulty);
      } catch (const Error&) {
        thrown = true;
      }
      broke = faulty.broke();
      const std::string manifest = options.output + "/" + kManifestName;
      const bool whole = std::filesystem::exists(manifest);
      if (whole) {
        EXPECT_NO_THROW(Manifest::load(manifest).verify_contents(options.output));
      }
      // Failing to remove the files that are useless at the end is only a warning.
      ASSERT_TRUE(thrown || whole);
      ASSERT_TRUE(broke || !thrown);
      if (n % 4 == 0) tokenize_corpus(options);
    }
    EXPECT_GT(n, 30) << "too few operations for a tokenization";
  }
}

// --- interrupted runs ----------------------------------------------------------------------------

// Text of several batches in four files of every kind but Parquet, in shards that are complete at
// different times in both splits, and long documents that span shards.
TokenizeOptions several_batches(const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::string lines;
  for (uint32_t i = 0; i < 250; ++i)
    lines += nlohmann::json{{"text", test::generated_text(i, 3 + int(i) * 37 % 700)}}.dump() + "\n";
  std::string paragraphs;
  for (uint32_t i = 0; i < 200; ++i) paragraphs += test::generated_text(i + 7000, 300) + "\n\n";
  write_text(directory + "/a.jsonl", lines);
  write_text(directory + "/b.txt.gz", test::gzip(paragraphs));
  write_text(directory + "/c.json.zst", test::zstd(lines + "broken\n"));
  write_text(directory + "/d.txt", test::generated_text(3, 40'000));
  return {.corpus = {.patterns = {directory + "/[abcd].*"},
                     .on_bad_document = OnBadDocument::kSkip,
                     .max_document_bytes = 40'000},
          .tokenizer = test::small_tokenizer(),
          .output = directory + "/out",
          .tokens_per_shard = 120'000,
          .validation_fraction = 0.1,
          .seed = 5,
          .threads = 1};
}

bool has_progress(const TokenizeOptions& options) {
  return std::filesystem::exists(options.output + "/.mpretrain_unfinished/progress.json");
}

// Ends a run at its n-th operation like a kill; returns false if it was complete before.
bool stop_at(int64_t n, const TokenizeOptions& options, test::Fault fault = test::Fault::kStop) {
  test::FaultFileSystem faulty(posix_file_system());
  faulty.fail_at(n, fault);
  try {
    tokenize_corpus(options, faulty);
  } catch (const Error&) {
    return true;
  }
  return false;
}

void expect_same_manifest_and_shards(const TokenizeOptions& options, const TokenizeResult& found,
                                     const std::map<std::string, std::string>& expected) {
  EXPECT_TRUE(files_in(options.output) == expected);
  EXPECT_FALSE(std::filesystem::exists(options.output + "/.mpretrain_unfinished"));
  EXPECT_NO_THROW(found.manifest.verify_contents(options.output));
}

TEST(InterruptedTokenize, GoesOnToTheSameBytesWhereverItStopped) {
  const std::string directory = fresh_directory();
  TokenizeOptions options = several_batches(directory);
  const TokenizeResult whole = tokenize_corpus(options);
  const auto expected = files_in(options.output);
  ASSERT_GT(expected.size(), 12u);
  EXPECT_GT(whole.corpus.cuts, 3);
  EXPECT_EQ(whole.corpus.bad, 1);
  std::set<int64_t> continued;
  int64_t complete = 0;
  for (int64_t n = 3;; n += 9) {
    const test::Fault fault = n % 2 == 0 ? test::Fault::kStop : test::Fault::kStopShort;
    SCOPED_TRACE(fmt::format("{} at operation {}", name_of(fault), n));
    std::filesystem::remove_all(options.output);
    if (!stop_at(n, options, fault)) break;
    stop_at(20, options, fault);  // again, some time after it resumes
    // If killed while shards were being moved into place, it starts over.
    options.overwrite = std::filesystem::exists(options.output + "/train_000000.bin");
    complete += options.overwrite ? 1 : 0;
    const TokenizeResult result = tokenize_corpus(options);
    expect_same_manifest_and_shards(options, result, expected);
    EXPECT_TRUE(result.corpus == whole.corpus);
    EXPECT_EQ(result.tokens, whole.tokens);
    EXPECT_EQ(result.manifest.splits.at("train").unigram_entropy_nats,
              whole.manifest.splits.at("train").unigram_entropy_nats);
    continued.insert(result.continued);
  }
  EXPECT_GT(continued.size(), 4u) << "too few different places to go on from";
  EXPECT_LT(complete, 10);
}

// Operations that a full disk can prevent precede all moves into place.
TEST(InterruptedTokenize, GoesOnUnlessItsFilesWereBeingMoved) {
  const std::string directory = fresh_directory();
  const TokenizeOptions options = few_documents(directory);
  tokenize_corpus(options);
  const auto expected = files_in(options.output);
  int64_t moving = 0;
  for (int64_t n = 2;; ++n) {
    SCOPED_TRACE(fmt::format("operation {}", n));
    std::filesystem::remove_all(options.output);
    if (!stop_at(n, options, test::Fault::kError)) break;
    if (std::filesystem::exists(options.output + "/train_000000.bin")) {
      ++moving;
      continue;
    }
    tokenize_corpus(options);
    EXPECT_TRUE(files_in(options.output) == expected);
  }
  EXPECT_LE(moving, std::ssize(expected));
}

TEST(InterruptedTokenize, OneThatIsAskedOtherwiseIsRefusedOrGivenUp) {
  const std::string directory = fresh_directory();
  const TokenizeOptions options = several_batches(directory);
  ASSERT_TRUE(stop_at(50, options));
  ASSERT_TRUE(has_progress(options));
  const auto refuse = [&](const std::function<void(TokenizeOptions&)>& change,
                          const std::vector<std::string>& parts) {
    TokenizeOptions other = options;
    change(other);
    expect_error([&] { tokenize_corpus(other); }, parts);
    EXPECT_TRUE(has_progress(options));
  };
  refuse([](auto& o) { o.seed = 6; }, {".mpretrain_unfinished", "(seed 5, now 6)", "--overwrite"});
  refuse([](auto& o) { o.tokens_per_shard = 99; }, {"tokens_per_shard 120000, now 99"});
  refuse([](auto& o) { o.corpus.document = DocumentUnit::kLine; },
         {"document \"paragraph\", now \"line\""});
  refuse([](auto& o) { o.corpus.as = TextKind::kPlainText; }, {"as \"\", now \"text\""});
  refuse([&](auto& o) { o.corpus.patterns = {directory + "/a.*"}; }, {"4 inputs, now 1"});
  write_text(directory + "/d.txt", "other");
  refuse([](auto&) {}, {"d.txt\" was modified since"});
  TokenizeOptions other = options;
  other.overwrite = true;
  EXPECT_EQ(tokenize_corpus(other).continued, 0);
  EXPECT_FALSE(has_progress(options));
}

// The setting for bad documents matters only if some have been found.
TEST(InterruptedTokenize, MaySkipWhatItStoppedAt) {
  TokenizeOptions options = several_batches(fresh_directory());
  options.corpus.on_bad_document = OnBadDocument::kError;
  expect_error([&] { tokenize_corpus(options); }, {"c.json.zst:251: not a JSON object"});
  ASSERT_TRUE(has_progress(options));
  options.corpus.on_bad_document = OnBadDocument::kSkip;
  const TokenizeResult result = tokenize_corpus(options);
  EXPECT_GT(result.continued, 0);
  const auto found = files_in(options.output);
  std::filesystem::remove_all(options.output);
  tokenize_corpus(options);
  EXPECT_TRUE(found == files_in(options.output));
}

TEST(InterruptedTokenize, OneRunAtATimeWritesToADirectory) {
  const TokenizeOptions options = several_batches(fresh_directory());
  ASSERT_TRUE(stop_at(50, options));
  const auto left = files_in(options.output + "/.mpretrain_unfinished");
  const DirectoryLock lock(options.output);
  expect_error([&] { tokenize_corpus(options); },
               {options.output + ": another run is writing here (process "});
  EXPECT_TRUE(left == files_in(options.output + "/.mpretrain_unfinished"));
}

// `progress` with other splits.
template <class Change>
std::string changed(const std::string& progress, const Change& change) {
  auto content = nlohmann::json::parse(progress);
  change(content["splits"]);
  return content.dump();
}

TEST(InterruptedTokenize, DamagedProgressIsNamed) {
  const TokenizeOptions options = several_batches(fresh_directory());
  ASSERT_TRUE(stop_at(50, options));
  const std::string left = options.output + "/.mpretrain_unfinished";
  const std::string progress = test::read_text(left + "/progress.json");
  for (const auto& [content, part] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "remove the directory to start over"},
           {progress.substr(0, progress.size() / 2), "progress.json"},
           {R"({"format":"another"})", "has format \"another\""},
           {changed(progress, [](nlohmann::json& splits) { splits.erase("val"); }),
            "'val' not found"}}) {
    write_text(left + "/progress.json", content);
    expect_error([&] { tokenize_corpus(options); }, {left + "/progress.json: ", part});
  }
  write_text(left + "/progress.json",
             changed(progress, [](nlohmann::json& splits) { splits["train"]["counts"].erase(5); }));
  expect_error([&] { tokenize_corpus(options); },
               {"train: has counts of", "remove " + left + " to start over"});
  write_text(left + "/progress.json", progress);
  const auto shard = nlohmann::json::parse(progress)["splits"]["train"]["shards"][0];
  std::filesystem::remove(left + "/" + shard["file"].get<std::string>());
  expect_error([&] { tokenize_corpus(options); },
               {"train_000000.bin: no such file", "remove " + left + " to start over"});
}

TEST(SplitWriter, EntropyOfKnownDistributions) {
  EXPECT_EQ(entropy_nats(std::vector<int64_t>{0, 0}), 0);
  EXPECT_EQ(entropy_nats(std::vector<int64_t>{0, 9, 0}), 0);
  EXPECT_NEAR(entropy_nats(std::vector<int64_t>(1000, 3)), std::log(1000.0), 1e-10);
  EXPECT_NEAR(entropy_nats(std::vector<int64_t>{1, 3}),
              0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3), 1e-15);
}

TEST(SplitWriter, KnowsItsOwnFiles) {
  for (const char* own :
       {"train_000000.bin", "train_000012.idx", "train_000000.bin.tmp", "train_000000.idx.tmp"})
    EXPECT_TRUE(is_split_file(own, "train")) << own;
  for (const char* other : {"train_0.bin", "train_000000.txt", "xtrain_000000.bin",
                            "train_000000.bin.bak", "train", ""})
    EXPECT_FALSE(is_split_file(other, "train")) << other;
}

struct Number {
  int value;
};

TEST(OrderedPipeline, KeepsOrderAndDepth) {
  for (const int workers : {1, 4}) {
    std::atomic<int> made = 0;
    int taken = 0;
    OrderedPipeline<Number> pipeline(
        {.workers = workers, .depth = 3},
        [&]() -> std::unique_ptr<Number> {
          return made < 500 ? std::make_unique<Number>(made++) : nullptr;
        },
        [](Number& number, int) { number.value *= 2; });
    while (const auto number = pipeline.next()) {
      EXPECT_EQ(number->value, 2 * taken++);
      EXPECT_LE(made.load(), taken + 4);
    }
    EXPECT_EQ(taken, 500);
  }
}

TEST(OrderedPipeline, ErrorsComeInTheirPlaceAndDestructionNeverHangs) {
  for (int fail_at = 0; fail_at < 20; ++fail_at) {
    for (const bool making : {true, false}) {
      int made = 0;
      OrderedPipeline<Number> pipeline(
          {.workers = 2, .depth = 4},
          [&] {
            if (making && made == fail_at) throw error("making {}", made);
            return std::make_unique<Number>(made++);
          },
          [&](Number& number, int) {
            if (!making && number.value == fail_at) throw error("working on {}", number.value);
          });
      for (int i = 0; i < fail_at; ++i) ASSERT_EQ(pipeline.next()->value, i);
      expect_error([&] { pipeline.next(); }, {fmt::format("{}", fail_at)});
    }
  }
}

// Simulates a system without room for that many stacks.
void start_too_many() {
  const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    const OrderedPipeline<Number> pipeline(
        {.workers = 4000, .depth = 4}, [] { return nullptr; }, [](Number&, int) {});
  } catch (const Error& refused) {
    fmt::print(stderr, "{}\n", refused.what());
    std::_Exit(1);
  }
  std::_Exit(0);
}

TEST(OrderedPipeline, ThreadsThatCannotBeStarted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more addresses than the limit leaves";
#endif
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(1),
              "only [0-9]+ of 4001 threads could be started: .*; ask for fewer");
}

TEST(OrderedPipeline, MayBeDroppedAtAnyTime) {
  for (int taken = 0; taken < 10; ++taken) {
    int made = 0;
    OrderedPipeline<Number> pipeline(
        {.workers = 3, .depth = 2}, [&] { return std::make_unique<Number>(made++); },
        [](Number&, int) {});
    for (int i = 0; i < taken; ++i) pipeline.next();
  }
}

}  // namespace
}  // namespace mpt
