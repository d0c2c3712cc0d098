// From text to batches: the tokenizer as run by `mpretrain tokenize`, SentencePiece by itself, and
// the loader.
//
//   MPT_BENCH_TEXT='corpus/*.txt' MPT_BENCH_TOKENIZER=tokenizer.model data_bench
// MPT_BENCH_TEXT: files and globs as for tokenize; by default, words drawn from a synthetic
// vocabulary. MPT_BENCH_TOKENIZER: a SentencePiece model; by default, one trained on the text.
//
//   tokenize/<threads>   reads the text, encodes it in that many threads and writes shards.
//                        Alternates with untimed runs of the same in one thread and of
//                        SentencePiece; x_... gives the speedup over these.
//   sentencepiece        the work of its command line in its one thread, except reading and
//                        writing: encode() of every line
//   loader/<shards>      batches of 16 rows of 256 tokens in shuffled order, read ahead by the
//                        loader's thread, from shards in the page cache
// MB/s is text, or tokens as stored; CPU is the time of all threads.
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <sentencepiece_processor.h>

#include "core/random.h"
#include "data/dataloader.h"
#include "run_benchmarks.h"
#include "scratch_directory.h"
#include "seconds_of.h"
#include "text/corpus/corpus.h"
#include "text/corpus/tokenize.h"
#include "text/tokenizer_training.h"

namespace mpt {
namespace {

using benchmark::Counter;

ScratchDirectory& scratch() {
  static ScratchDirectory directory;
  return directory;
}

// --- text ----------------------------------------------------------------------------------------

// A sequence of numbers in [0, 1).
class Draws {
 public:
  double next() { return double(counter_.word(column_++)) * 0x1p-32; }

 private:
  RandomCounter counter_{.seed = 1, .tensor = 0, .row = 0, .step = 0, .stream = kSyntheticStream};
  uint32_t column_ = 0;
};

std::string made_up_word(Draws& draws) {
  constexpr std::string_view kConsonants = "bcdfghklmnprstvw", kVowels = "aeiou";
  std::string word;
  for (auto syllables = 1 + int(3.5 * draws.next()); syllables > 0; --syllables) {
    word += kConsonants[size_t(draws.next() * double(kConsonants.size()))];
    word += kVowels[size_t(draws.next() * double(kVowels.size()))];
    if (draws.next() < 0.4) word += kConsonants[size_t(draws.next() * double(kConsonants.size()))];
  }
  return word;
}

// Word r of the vocabulary is about as frequent as 1 / r, as in natural languages: most words are
// repeated, and new ones keep appearing.
void write_made_up_text(const std::string& path) {
  constexpr int64_t kBytes = 8 << 20, kWordsOfLine = 12, kLinesOfDocument = 30;
  constexpr double kVocabulary = 200'000;
  Draws draws;
  std::vector<std::string> vocabulary(static_cast<size_t>(kVocabulary));
  for (std::string& word : vocabulary) word = made_up_word(draws);
  std::ofstream file(path);
  for (int64_t written = 0, words = 1; written < kBytes; ++words) {
    const std::string& word = vocabulary[size_t(std::pow(kVocabulary, draws.next())) - 1];
    const bool ends_line = words % kWordsOfLine == 0;
    const bool ends_document = words % (kWordsOfLine * kLinesOfDocument) == 0;
    file << word << (ends_document ? ".\n\n" : ends_line ? "\n" : " ");
    written += std::ssize(word) + 1;
  }
  if (!file.flush()) throw error("{}: the text could not be written", path);
}

struct Text {
  CorpusOptions corpus;
  std::string tokenizer;
  std::vector<std::string> lines;
  double bytes = 0;
};

CorpusOptions chosen_corpus() {
  if (const char* const chosen = std::getenv("MPT_BENCH_TEXT")) return {.patterns = {chosen}};
  const std::string path = scratch().file("text.txt");
  write_made_up_text(path);
  return {.patterns = {path}};
}

std::string chosen_tokenizer(const CorpusOptions& corpus) {
  if (const char* const chosen = std::getenv("MPT_BENCH_TOKENIZER")) return chosen;
  return train_tokenizer({.corpus = corpus,
                          .output = scratch().file("tokenizer.model"),
                          .vocab_size = 4096,
                          .sample_bytes = 1 << 20})
      .path;
}

void add_lines(std::string_view document, std::vector<std::string>& lines) {
  while (!document.empty()) {
    const size_t end = std::min(document.find('\n'), document.size());
    lines.emplace_back(document.substr(0, end));
    document.remove_prefix(std::min(end + 1, document.size()));
  }
}

const Text& text() {
  static const Text prepared = [] {
    Text made{.corpus = chosen_corpus(), .tokenizer = {}, .lines = {}};
    made.tokenizer = chosen_tokenizer(made.corpus);
    CorpusReader reader(made.corpus);
    for (std::string document; reader.next(document);) add_lines(document, made.lines);
    made.bytes = double(reader.stats().text_bytes);
    return made;
  }();
  return prepared;
}

// --- tokenizers ----------------------------------------------------------------------------------

int64_t tokenize(int threads) {
  return tokenize_corpus({.corpus = text().corpus,
                          .tokenizer = text().tokenizer,
                          .output = scratch().file("tokens"),
                          .threads = threads,
                          .overwrite = true})
      .tokens;
}

int64_t sentencepiece_encode() {
  static const auto processor = [] {
    auto loaded = std::make_unique<sentencepiece::SentencePieceProcessor>();
    if (const auto status = loaded->Load(text().tokenizer); !status.ok())
      throw error("{}: {}", text().tokenizer, status.error_message());
    return loaded;
  }();
  int64_t tokens = 0;
  std::vector<int> ids;
  for (const std::string& line : text().lines) {
    if (!processor->Encode(line, &ids).ok()) throw error("SentencePiece cannot encode '{}'", line);
    tokens += std::ssize(ids);
  }
  return tokens;
}

void count_text(benchmark::State& state, int64_t tokens) {
  state.counters["tokens/s"] = {double(tokens), Counter::kIsIterationInvariantRate};
  state.counters["MB/s"] = {text().bytes * 1e-6, Counter::kIsIterationInvariantRate};
}

void run_tokenize(benchmark::State& state, int threads) {
  tokenize(threads);  // reads the files for the first time
  double own = 0, one_thread = 0, peer = 0;
  int64_t tokens = 0;
  for (auto _ : state) {
    own += seconds_of([&] { tokens = tokenize(threads); });
    state.PauseTiming();
    if (threads > 1) one_thread += seconds_of([] { tokenize(1); });
    peer += seconds_of([] { benchmark::DoNotOptimize(sentencepiece_encode()); });
    state.ResumeTiming();
  }
  count_text(state, tokens);
  if (threads > 1) state.counters["x_one_thread"] = one_thread / own;
  state.counters["x_sentencepiece"] = peer / own;
}

void run_sentencepiece(benchmark::State& state) {
  int64_t tokens = 0;
  for (auto _ : state) tokens = sentencepiece_encode();
  count_text(state, tokens);
}

// --- loader --------------------------------------------------------------------------------------

constexpr int64_t kLoaderTokens = 16 << 20, kLoaderVocabulary = 32000;

// Returns the shards' file pattern. The shards are kept for the next call.
std::string shards_of(int64_t count) {
  const std::string name = fmt::format("loader_{}", count);
  const std::string pattern = scratch().file(name + "_*.bin");
  if (std::filesystem::exists(scratch().file(name + "_0.bin"))) return pattern;
  std::vector<int32_t> tokens(size_t(kLoaderTokens / count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * 7919 % kLoaderVocabulary);
  for (int64_t i = 0; i < count; ++i) {
    TokenShardWriter shard(scratch().file(fmt::format("{}_{}.bin", name, i)),
                           token_width_for(kLoaderVocabulary));
    shard.append(tokens);
    shard.commit();
  }
  return pattern;
}

void run_loader(benchmark::State& state, int64_t shards) {
  constexpr int64_t kRows = 16, kSeqLen = 256;
  const auto source =
      std::make_shared<const SequenceSource>(SequenceOptions{.patterns = {shards_of(shards)},
                                                             .seq_len = kSeqLen,
                                                             .seed = 1,
                                                             .vocab_size = kLoaderVocabulary});
  DataLoader loader(source, {.rows_per_batch = kRows});
  loader.next();
  for (auto _ : state) benchmark::DoNotOptimize(loader.next().hash);
  const double tokens = kRows * kSeqLen;
  state.counters["tokens/s"] = {tokens, Counter::kIsIterationInvariantRate};
  const auto width = double(bytes_of(token_width_for(kLoaderVocabulary)));
  state.counters["MB/s"] = {tokens * width * 1e-6, Counter::kIsIterationInvariantRate};
}

void register_all() {
  const auto add = [](const std::string& name, auto run, auto... arguments) {
    return benchmark::RegisterBenchmark(name.c_str(), run, arguments...)
        ->UseRealTime()
        ->MeasureProcessCPUTime();
  };
  for (const int threads : {1, 2})
    add(fmt::format("tokenize/{}", threads), run_tokenize, threads)->Unit(benchmark::kMillisecond);
  add("sentencepiece", run_sentencepiece)->Unit(benchmark::kMillisecond);
  for (const int64_t shards : {1, 8, 64})
    add(fmt::format("loader/{}", shards), run_loader, shards)->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) try {
  mpt::register_all();
  return mpt::run_benchmarks(argc, argv, 1.0);
} catch (const mpt::Error& failure) {
  fmt::print(stderr, "data_bench: {}\n", failure.what());
  return 1;
}
