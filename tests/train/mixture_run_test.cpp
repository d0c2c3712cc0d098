// Runs on several corpora and several validation sets.
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "text/corpus/tokenize.h"
#include "text/tokenizer_training.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;

// Returns the corpora of a mixture, as an override.
std::string corpora(const std::string& directory, double a, double b, const char* more = "") {
  return fmt::format(
      R"(data.train=[{{"name":"a","files":"{0}/train_0.bin","weight":{1}}},)"
      R"({{"name":"b","files":["{0}/train_1.bin","{0}/train_2.bin"],"weight":{2}}}{3}])",
      directory, a, b, more);
}
const std::string kPhases = R"(data.phases=[{"from":0.5,"weights":{"a":1,"b":9}}])";

class MixtureRun : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(path()); }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  RunConfig run(const std::string& name, Overrides overrides, const std::string& from = "",
                int64_t ranks = 1) {
    overrides.emplace_back("device.threads=1");
    const RunConfig config = tiny_config(path(), name, overrides);
    train_on(ranks, config, from);
    return config;
  }
  TempDirectory directory_{memory_directory()};
};

uint64_t hash_of_step(const RowSource& rows, int64_t step) {
  return read_batch(rows, 6 * (step - 1), 6).hash;
}
void expect_rows(const RunConfig& config, const RowSource& rows, int64_t from) {
  const auto records = records_of(config);
  for (int64_t step = from + 1; step <= kTinySteps; ++step)
    EXPECT_EQ(records.at(step).at("data_hash"), fmt::format("{:016x}", hash_of_step(rows, step)))
        << step;
}

TEST_F(MixtureRun, ReadsItsCorporaByTheirWeights) {
  const RunConfig config = run("run", {corpora(path(), 3, 1), kPhases});
  const auto data = open_training_data(config);
  EXPECT_EQ(data->order(),
            MixtureOrder({{0, {{"a", 750}, {"b", 250}}}, {12 * 6, {{"a", 100}, {"b", 900}}}}));
  expect_rows(config, *data, 0);
}

TEST_F(MixtureRun, GoesOnFromEveryStepWithTheSameBytes) {
  const Overrides mixture{corpora(path(), 3, 1), kPhases};
  const RunConfig whole = run("whole", mixture);
  for (const int64_t step : {1, 11, 12, 13, 20}) {
    const RunConfig part = run(fmt::format("part{}", step), mixture, checkpoint_path(whole, step));
    EXPECT_TRUE(tensors_at(part, kTinySteps) == tensors_at(whole, kTinySteps)) << step;
    EXPECT_TRUE(metrics_of(whole).ends_with(metrics_of(part))) << step;
  }
}

TEST_F(MixtureRun, ReadsTheSameRowsOnAnyNumberOfRanks) {
  const Overrides mixture{corpora(path(), 3, 1), kPhases};
  const RunConfig one = run("one", mixture);
  for (const int64_t ranks : {2, 3}) {
    const RunConfig several = run(fmt::format("ranks{}", ranks), mixture, "", ranks);
    for (int64_t step = 1; step <= kTinySteps; ++step)
      EXPECT_EQ(records_of(several).at(step).at("data_hash"),
                records_of(one).at(step).at("data_hash"))
          << step;
  }
}

TEST_F(MixtureRun, OfOneNamedCorpusIsARunOnItsShards) {
  const RunConfig plain = run("plain", {});
  const RunConfig named = run(
      "named", {fmt::format(R"(data.train=[{{"name":"a","files":"{}/train_*.bin","weight":0.1}}])",
                            path())});
  EXPECT_TRUE(tensors_at(plain, kTinySteps) == tensors_at(named, kTinySteps));
}

// Other weights, another corpus, or one less: rows already read are not read again, and the rest
// follows the new order.
TEST_F(MixtureRun, MayChangeItsWeightsWhereItIsResumed) {
  write_random_shard(path() + "/more.bin", 400, 9);
  const RunConfig whole = run("whole", {corpora(path(), 3, 1)});
  const MixtureOrder former({{0, {{"a", 750}, {"b", 250}}}});
  struct Change {
    std::string train;
    CycleShares shares;
  };
  const std::vector<Change> changes{
      {corpora(path(), 1, 3), {{"a", 250}, {"b", 750}}},
      {corpora(path(), 1, 1,
               fmt::format(R"(,{{"name":"c","files":"{}/more.bin","weight":2}})", path()).c_str()),
       {{"a", 250}, {"b", 250}, {"c", 500}}},
      {fmt::format(R"(data.train=[{{"name":"a","files":"{}/train_0.bin","weight":1}}])", path()),
       {{"a", 1000}}}};
  for (const Change& change : changes) {
    SCOPED_TRACE(change.train);
    const RunConfig other = run("other" + std::to_string(&change - changes.data()), {change.train},
                                checkpoint_path(whole, 9));
    const MixtureOrder order = MixtureOrder({{0, change.shares}}).continuing(former, 9 * 6);
    expect_rows(other, *open_training_data(other)->in_order(order), 9);
    // A second continuation keeps both parts.
    const RunConfig again = run("again" + std::to_string(&change - changes.data()), {change.train},
                                checkpoint_path(other, 15));
    EXPECT_TRUE(tensors_at(again, kTinySteps) == tensors_at(other, kTinySteps));
  }
}

TEST_F(MixtureRun, CannotGoOnWithOtherShardsOfACorpus) {
  const RunConfig whole = run("whole", {corpora(path(), 3, 1), "train.steps=2"});
  EXPECT_ERROR(
      run("other",
          {fmt::format(R"(data.train=[{{"name":"a","files":"{}/train_2.bin","weight":1}}])",
                       path()),
           "train.steps=2"},
          checkpoint_path(whole, 1)),
      "the shards of a are not those it was trained on",
      "train_0.bin of 301 tokens and is train_2.bin of 512 tokens");
}

// Rows already read of a corpus that is dropped for a while are not read again, and must not
// change.
TEST_F(MixtureRun, RemembersACorpusThatWasLeftOut) {
  const std::string only_a =
      fmt::format(R"(data.train=[{{"name":"a","files":"{}/train_0.bin","weight":1}}])", path());
  const RunConfig whole = run("whole", {corpora(path(), 3, 1)});
  const RunConfig without = run("without", {only_a}, checkpoint_path(whole, 9));
  const RunConfig later = run("later", {only_a}, checkpoint_path(without, 12));
  const RunConfig back = run("back", {corpora(path(), 1, 1)}, checkpoint_path(later, 15));
  const MixtureOrder order(
      {{0, {{"a", 750}, {"b", 250}}}, {9 * 6, {{"a", 1000}}}, {15 * 6, {{"a", 500}, {"b", 500}}}});
  expect_rows(back, *open_training_data(back)->in_order(order), 15);
  EXPECT_ERROR(run("other",
                   {"data.train=" + std::string(R"([{"name":"b","files":")") + path() +
                    R"(/train_0.bin","weight":1}])"},
                   checkpoint_path(later, 15)),
               "the shards of b are not those", "the same shards");
}

// A run on a plain list of shards continues with it as one of several corpora.
TEST_F(MixtureRun, GoesOnWithACorpusThatGetsAName) {
  const std::string shards = path() + "/train_0.bin";
  const RunConfig plain = run("plain", {"data.train=" + shards});
  const RunConfig mixed = run("mixed", {corpora(path(), 3, 1)}, checkpoint_path(plain, 9));
  const MixtureOrder order({{0, {{"a", 1000}}}, {9 * 6, {{"a", 750}, {"b", 250}}}});
  expect_rows(mixed, *open_training_data(mixed)->in_order(order), 9);
  const RunConfig again = run("again", {corpora(path(), 3, 1)}, checkpoint_path(mixed, 15));
  EXPECT_TRUE(tensors_at(again, kTinySteps) == tensors_at(mixed, kTinySteps));
}

// --- validation ----------------------------------------------------------------------------------

TEST_F(MixtureRun, EvaluatesEachSetAndAll) {
  write_random_shard(path() + "/other.bin", 90, 8);
  const Overrides plain{"eval.tokens=1000", "train.steps=2"};
  const auto last = [&](const std::string& name, const std::string& sets, int64_t ranks) {
    Overrides overrides = plain;
    overrides.push_back("data.validation=" + sets);
    return records_of(run(name, overrides, "", ranks)).at(2);
  };
  const std::string val = path() + "/val_0.bin", other = path() + "/other.bin";
  const nlohmann::json of_val = last("val", val, 1), of_other = last("other", other, 1);
  for (const int64_t ranks : {1, 2}) {
    const nlohmann::json both =
        last(fmt::format("both{}", ranks),
             fmt::format(R"({{"web":"{}","books":["{}"]}})", val, other), ranks);
    const nlohmann::json& sets = both.at("validation");
    EXPECT_EQ(sets.size(), 2U);
    if (ranks == 1) {
      for (const char* key : {"loss", "perplexity", "tokens", "loss_family"}) {
        EXPECT_EQ(sets.at("web").at(key), of_val.at(std::string("val_") + key));
        EXPECT_EQ(sets.at("books").at(key), of_other.at(std::string("val_") + key));
      }
    }
    const double web = sets.at("web").at("tokens"), books = sets.at("books").at("tokens");
    EXPECT_EQ(both.at("val_tokens"), web + books);
    EXPECT_NEAR(both.at("val_loss").get<double>(),
                (web * sets.at("web").at("loss").get<double>() +
                 books * sets.at("books").at("loss").get<double>()) /
                    (web + books),
                1e-12);
  }
  EXPECT_FALSE(of_val.contains("validation"));
  EXPECT_FALSE(of_val.contains("val_bits_per_byte")) << "random ids have no text";
}

TEST_F(MixtureRun, SaysOnceWhyBitsPerByteAreUnknown) {
  const std::string removes = R"({"type":"Split","pattern":{"String":"\n"},"behavior":"Removed",)"
                              R"("invert":false})";
  const std::string tokenizer = path() + "/tokenizer.json";
  write_file_atomically(posix_file_system(), tokenizer,
                        bytes_of(R"({"pre_tokenizer":)" + removes +
                                 R"(,"model":{"type":"BPE","vocab":{"a":0,"b":60},"merges":[]}})"));
  const CapturedLog log;
  run("run", {"data.validation=" + path() + "/val_0.bin", "data.tokenizer=" + tokenizer,
              "eval.every_steps=1", "train.steps=3"});
  EXPECT_EQ(count(log.text(), "bits per byte are not reported: "), 1) << log.text();
  EXPECT_TRUE(log.has(tokenizer + ": its pre_tokenizer leaves out text"));
}

TEST_F(MixtureRun, OfTwoTokenizersIsRefused) {
  const std::string text = path() + "/text.txt";
  std::string words;
  for (int i = 0; i < 400; ++i) words += fmt::format("kalo mi {} lo mika\n\n", i * 7919);
  write_file_atomically(posix_file_system(), text, bytes_of(words));
  std::string train;
  for (const auto& [name, size] : {std::pair{"a", 280}, {"b", 290}}) {
    TokenizerTrainingOptions training;
    training.corpus.patterns = {text};
    training.output = path() + "/" + name;
    training.vocab_size = size;
    TokenizeOptions options;
    options.corpus.patterns = {text};
    options.tokenizer = train_tokenizer(training).path;
    options.output = path() + "/shards_" + name;
    tokenize_corpus(options);
    train += fmt::format(R"({}{{"name":"{}","files":"{}/train_*.bin","weight":1}})",
                         train.empty() ? "" : ",", name, options.output);
  }
  const RunConfig config =
      tiny_config(path(), "run", {"data.train=[" + train + "]", "model.vocab_size=290"});
  EXPECT_ERROR(open_training_data(config), "shards_b/manifest.json: made with the tokenizer of");
}

// Text with characters of several bytes, none of which the tokenizer knows: each of its tokens but
// the first is predicted.
TEST_F(MixtureRun, TellsBitsPerByteOfTheText) {
  std::string words = "kalo mi ka";
  for (int i = 0; i < 30; ++i) words += " lo mika kalo";
  std::string corpus;
  for (int i = 0; i < 5; ++i)
    corpus += words + "\n\n\xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80 caf\xC3\xA9\n\n";
  write_file_atomically(posix_file_system(), path() + "/text.txt", bytes_of(corpus));
  TokenizerTrainingOptions training;
  training.corpus.patterns = {path() + "/text.txt"};
  training.output = path() + "/small";
  training.vocab_size = 280;
  training.character_coverage = 0.98;
  TokenizeOptions options;
  options.corpus.patterns = {path() + "/text.txt"};
  options.tokenizer = train_tokenizer(training).path;
  options.output = path() + "/shards";
  const TokenizeResult shards = tokenize_corpus(options);
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const auto first = tokenizer.encode(words).front();
  const int64_t bytes = shards.corpus.text_bytes - std::ssize(tokenizer.decode({{first}}));

  const std::string bin = path() + "/shards/train_000000.bin";
  const RunConfig config = run(
      "run", {"data.train=" + bin, "data.validation=" + bin, "model.vocab_size=280",
              "batch.seq_len=1", "batch.tokens_per_step=6", "train.steps=1", "eval.tokens=100000"});
  const nlohmann::json record = records_of(config).at(1);
  EXPECT_EQ(record.at("val_tokens"), shards.tokens - 1);
  EXPECT_NEAR(record.at("val_bits_per_byte").get<double>(),
              record.at("val_loss").get<double>() * double(shards.tokens - 1) /
                  (std::numbers::ln2 * double(bytes)),
              1e-12);
}

}  // namespace
}  // namespace mpt::test
