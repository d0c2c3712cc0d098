#include "text/corpus/tokenize.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/directory_lock.h"
#include "core/io/output_directory.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "data/shuffle.h"
#include "text/corpus/ordered_pipeline.h"
#include "text/corpus/text_encoder.h"
#include "text/corpus/unfinished_run.h"
#include "text/corpus/word_cache.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{256} << 10;  // text per worker and batch

// Elements of several documents in one vector; separate allocations would be made by one thread and
// freed by another.
template <class Elements>
class Documents {
 public:
  Elements elements;  // all documents; those after the last end() belong to the next one

  void end() { ends_.push_back(elements.size()); }
  [[nodiscard]] size_t size() const { return ends_.size(); }
  [[nodiscard]] auto operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(elements).subspan(begin, ends_[i] - begin);
  }

 private:
  std::vector<size_t> ends_;
};

struct TextBatch {
  Documents<std::string> texts;
  Documents<std::vector<int32_t>> tokens;
  // Read from the corpus by the time the batch was complete.
  int64_t input_bytes_read = 0;
  CorpusPosition position;
};

void check_options(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.tokens_per_shard < 1 || options.tokens_per_shard > kMaxTokensPerShard)
    throw error("tokens_per_shard is {}; expected 1 to {}", options.tokens_per_shard,
                kMaxTokensPerShard);
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1))
    throw error(
        "--validation-fraction: validation_fraction is {}; expected at least 0 and less than 1",
        options.validation_fraction);
  if (options.threads < 0)
    throw error("threads is {}; expected at least 1, or 0 for all", options.threads);
  if (options.output.empty()) throw error("no output directory given");
  if (options.prepend_bos && tokenizer.bos_id() < 0)
    throw error("{}: has no BOS piece, which --bos prepends to documents", tokenizer.path());
  if (options.append_eos && tokenizer.eos_id() < 0)
    throw error("{}: has no EOS piece to append to documents; use --no-eos", tokenizer.path());
}

// Throws if the directory must not be written to.
void check_directory(const TokenizeOptions& options, const Tokenizer& tokenizer) try {
  if (options.overwrite) return;
  for (const char* const name : kTokenizerFiles)
    if (const std::string copy = in_directory(options.output, name);
        fs::exists(copy) && Tokenizer::load(copy).hash() != tokenizer.hash())
      throw error(
          "{}: is not the tokenizer {}; choose another directory, or replace it with --overwrite",
          copy, tokenizer.path());
  const std::vector<std::string> earlier = earlier_output(options.output);
  if (!earlier.empty())
    throw error(
        "{}: contains {} of an earlier run; choose another directory, or replace it with "
        "--overwrite",
        options.output, fs::path(earlier.front()).filename().string());
} catch (const fs::filesystem_error& failure) {
  throw error("{}: cannot be used as the output directory: {}", options.output, failure.what());
}

// `text` is a buffer for reading documents.
std::unique_ptr<TextBatch> read_text_batch(CorpusReader& corpus, std::string& text) {
  auto batch = std::make_unique<TextBatch>();
  while (batch->texts.elements.size() < kBatchBytes && corpus.next(text)) {
    batch->texts.elements += text;
    batch->texts.end();
  }
  batch->input_bytes_read = corpus.input_bytes_read();
  batch->position = corpus.position();
  return batch->texts.size() == 0 ? nullptr : std::move(batch);
}

void encode_batch(const TokenizeOptions& options, const Tokenizer& tokenizer, TextEncoder& encoder,
                  TextBatch& batch) {
  std::vector<int32_t>& tokens = batch.tokens.elements;
  for (size_t i = 0; i < batch.texts.size(); ++i) {
    const std::span<const char> text = batch.texts[i];
    if (options.prepend_bos) tokens.push_back(static_cast<int32_t>(tokenizer.bos_id()));
    encoder.append({text.data(), text.size()}, tokens);
    if (options.append_eos) tokens.push_back(static_cast<int32_t>(tokenizer.eos_id()));
    batch.tokens.end();
  }
}

// Tensor 2 of the data stream; 0 is the order of sequences, 1 a tokenizer's training sample.
bool is_validation(const TokenizeOptions& options, int64_t document) {
  const RandomCounter draw{.seed = options.seed,
                           .tensor = 2,
                           .row = static_cast<uint32_t>(document),
                           .step = static_cast<uint32_t>(document >> 32),
                           .stream = kDataOrderStream};
  const PhiloxBlock block = draw.block(0);
  const uint64_t bits = (uint64_t{block.word[0]} << 32 | block.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53 < options.validation_fraction;
}

class Splits {
 public:
  Splits(const TokenizeOptions& options, const std::string& directory, int64_t vocab_size,
         FileSystem& fs)
      : options_(options),
        train_({directory, kTrainSplit, options.tokens_per_shard, vocab_size}, fs),
        validation_({directory, kValidationSplit, options.tokens_per_shard, vocab_size}, fs) {}

  void add(const TextBatch& batch) {
    for (size_t i = 0; i < batch.texts.size(); ++i) {
      SplitWriter& split = is_validation(options_, number_++) ? validation_ : train_;
      if (!batch.tokens[i].empty()) split.add(batch.tokens[i], std::ssize(batch.texts[i]));
    }
  }

  void save_to(UnfinishedRun& run, const CorpusPosition& position) {
    run.save({.position = position,
              .splits = {{kTrainSplit, train_.save()}, {kValidationSplit, validation_.save()}}});
    train_.forget_earlier();
    validation_.forget_earlier();
    saved_shards_ = finished_shards();
  }
  // Asked after every finished shard; saves less often as shards accumulate, since each save lists
  // all of them.
  [[nodiscard]] bool should_be_saved() const {
    return finished_shards() > saved_shards_ + saved_shards_ / 64;
  }
  void go_on(const TokenizeProgress& progress) {
    train_.go_on(progress.splits.at(kTrainSplit));
    validation_.go_on(progress.splits.at(kValidationSplit));
    number_ = progress.position.stats.documents;
    saved_shards_ = finished_shards();
  }

  // Reports a requested split that is empty; "" if there is none.
  [[nodiscard]] std::string emptiness() const {
    if (number_ == 0)
      return fmt::format("{}: no documents in these files",
                         fmt::join(options_.corpus.patterns, ", "));
    if (train_.tokens() > 0 && (validation_.tokens() > 0 || !with_validation())) return "";
    return fmt::format(
        "none of the {} documents fell into the {} split with --validation-fraction {}; change it, "
        "or --seed",
        number_, train_.tokens() == 0 ? kTrainSplit : kValidationSplit,
        options_.validation_fraction);
  }
  std::map<std::string, ManifestSplit> finish() {
    std::map<std::string, ManifestSplit> splits{{kTrainSplit, train_.finish()}};
    if (with_validation()) splits[kValidationSplit] = validation_.finish();
    return splits;
  }

  [[nodiscard]] int64_t tokens() const { return train_.tokens() + validation_.tokens(); }
  [[nodiscard]] int64_t finished_shards() const {
    return train_.finished_shards() + validation_.finished_shards();
  }

 private:
  [[nodiscard]] bool with_validation() const { return options_.validation_fraction > 0; }

  const TokenizeOptions& options_;
  SplitWriter train_;
  SplitWriter validation_;
  int64_t number_ = 0;  // next document
  int64_t saved_shards_ = 0;
};

void run_pipeline(const TokenizeOptions& options, const Tokenizer& tokenizer, CorpusReader& corpus,
                  Splits& splits, UnfinishedRun& unfinished) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int workers = options.threads == 0 ? all : options.threads;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t tokens_before = splits.tokens();
  Progress progress({.label = "tokenize", .total = corpus.input_bytes()});
  WordCache words;
  std::vector<TextEncoder> encoders(static_cast<size_t>(workers),
                                    TextEncoder(tokenizer, words, options.special_tokens));
  OrderedPipeline<TextBatch> pipeline(
      {.workers = workers, .depth = 4 * workers},
      [&, text = std::string()]() mutable { return read_text_batch(corpus, text); },
      [&](TextBatch& batch, int worker) {
        encode_batch(options, tokenizer, encoders[static_cast<size_t>(worker)], batch);
      });
  while (const auto batch = pipeline.next()) {
    splits.add(*batch);
    if (splits.should_be_saved()) splits.save_to(unfinished, batch->position);
    const double rate = static_cast<double>(splits.tokens() - tokens_before) / seconds_since(begin);
    progress.update(batch->input_bytes_read, format_count(rate) + " tokens/s");
  }
}

// Everything the shards depend on, except file names.
nlohmann::json json_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  nlohmann::json values{
      {"text_field", options.corpus.text_field.value_or(kTextField)},
      {"on_bad_document", name_of(options.corpus.on_bad_document)},
      {"max_document_bytes", options.corpus.max_document_bytes},
      {"document", name_of(options.corpus.document.value_or(DocumentUnit::kParagraph))},
      {"tokens_per_shard", options.tokens_per_shard},
      {"validation_fraction", options.validation_fraction},
      {"seed", options.seed},
      {"prepend_bos", options.prepend_bos},
      {"append_eos", options.append_eos}};
  if (options.corpus.as) values["as"] = name_of(*options.corpus.as);
  if (tokenizer.kind() == TokenizerKind::kTokenizerJson)
    values["special_tokens"] = name_of(options.special_tokens);
  return values;
}

nlohmann::json run_of(const TokenizeOptions& options, const Tokenizer& tokenizer,
                      const CorpusReader& corpus) {
  nlohmann::json run = json_of(options, tokenizer);
  run["as"] = options.corpus.as ? name_of(*options.corpus.as) : "";
  run["tokenizer"] = tokenizer.hash();
  run["inputs"] = describe_inputs(corpus.files());
  return run;
}

nlohmann::json manifest_options(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  nlohmann::json values = json_of(options, tokenizer);
  values["patterns"] = options.corpus.patterns;
  return values;
}

void go_on(const UnfinishedRun& unfinished, CorpusReader& corpus, Splits& splits) try {
  const TokenizeProgress& progress = *unfinished.found();
  splits.go_on(progress);
  spdlog::info("{}: resuming an interrupted run after {} and {}", unfinished.path(),
               counted(progress.position.stats.documents, "document"),
               counted(splits.finished_shards(), "finished shard"));
  corpus.skip_to(progress.position);
} catch (const Error& failure) {
  throw error("{}; the interrupted run cannot be resumed: remove {} to start over", failure.what(),
              unfinished.path());
}

// Writes the shards and returns their manifest entries.
std::map<std::string, ManifestSplit> write_shards(const TokenizeOptions& options,
                                                  const Tokenizer& tokenizer, CorpusReader& corpus,
                                                  Splits& splits, UnfinishedRun& unfinished) try {
  if (unfinished.found()) go_on(unfinished, corpus, splits);
  run_pipeline(options, tokenizer, corpus, splits, unfinished);
  if (const std::string problem = splits.emptiness(); !problem.empty()) {
    unfinished.discard();
    throw Error(problem);
  }
  return splits.finish();
} catch (const Error&) {
  if (unfinished.saved())
    spdlog::warn("{}: kept {}; rerun the same command to resume", unfinished.path(),
                 counted(splits.finished_shards(), "finished shard"));
  throw;
}

// Does everything that a full disk can prevent before moving the shards to their final place.
void publish(UnfinishedRun& unfinished, const Tokenizer& tokenizer, const Manifest& manifest,
             FileSystem& fs) {
  write_file_atomically(fs, in_directory(unfinished.path(), tokenizer.file_name()),
                        bytes_of(tokenizer.model_bytes()));
  manifest.save(in_directory(unfinished.path(), kManifestName), fs);
  unfinished.publish();
}

}  // namespace

TokenizeResult tokenize_corpus(const TokenizeOptions& options, FileSystem& fs) {
  const auto begin = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  check_options(options, tokenizer);
  CorpusReader corpus(options.corpus);
  posix_file_system().create_directories(options.output);
  const DirectoryLock lock(options.output);
  check_directory(options, tokenizer);

  UnfinishedRun unfinished(fs, options.output, run_of(options, tokenizer, corpus),
                           options.overwrite ? Overwrite::kYes : Overwrite::kNo);
  Splits splits(options, unfinished.path(), tokenizer.vocab_size(), fs);
  TokenizeResult result;
  int64_t tokens_before = 0;
  if (unfinished.found()) {
    result.continued = unfinished.found()->position.stats.documents;
    for (const auto& [name, split] : unfinished.found()->splits)
      tokens_before += split.split.tokens;
  }
  result.manifest = {.tokenizer = {.file = tokenizer.file_name(),
                                   .hash = tokenizer.hash(),
                                   .vocab_size = tokenizer.vocab_size(),
                                   .bos_id = tokenizer.bos_id(),
                                   .eos_id = tokenizer.eos_id()},
                     .splits = write_shards(options, tokenizer, corpus, splits, unfinished),
                     .options = manifest_options(options, tokenizer)};
  publish(unfinished, tokenizer, result.manifest, fs);
  result.corpus = corpus.stats();
  result.files = std::ssize(corpus.files());
  result.plain_text = corpus.has_plain_text();
  result.tokens = splits.tokens();
  result.seconds = seconds_since(begin);
  result.bytes_per_token =
      static_cast<double>(result.corpus.text_bytes) / static_cast<double>(result.tokens);
  result.tokens_per_second = static_cast<double>(result.tokens - tokens_before) / result.seconds;
  return result;
}

}  // namespace mpt
