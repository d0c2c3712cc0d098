#include "data/corpus/tokenize.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/io/atomic_output.h"
#include "core/progress.h"
#include "core/random.h"
#include "data/corpus/ordered_pipeline.h"
#include "data/corpus/text_encoder.h"
#include "data/sequence_source.h"
#include "data/token_stream.h"
#include "data/tokenizer.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumberDigits = 6;  // of a shard's number in its name

std::string path_in(const std::string& directory, const std::string& file) {
  return (fs::path(directory) / file).string();
}

}  // namespace

SplitWriter::SplitWriter(Options options, FileSystem& fs)
    : options_(std::move(options)), fs_(fs), counts_(static_cast<size_t>(options_.vocab_size)) {}

std::string SplitWriter::shard_name(int64_t number) const {
  return fmt::format("{}_{:0{}}.bin", options_.name, number, kNumberDigits);
}

void SplitWriter::begin_shard() {
  const std::string name = shard_name(static_cast<int64_t>(split_.shards.size()));
  split_.shards.push_back({.file = name, .tokens = 0, .hash = ""});
  shard_.emplace(path_in(options_.directory, name), token_width_for(options_.vocab_size), fs_);
  starts_.clear();
}

// Writes the index first, so that every existing shard has one.
void SplitWriter::end_shard() {
  ManifestShard& entry = split_.shards.back();
  entry.tokens = shard_->tokens();
  const std::string path = path_in(options_.directory, entry.file);
  write_document_index(index_path_of(path), starts_, entry.tokens, fs_);
  entry.hash = shard_->commit();
  shard_.reset();
}

void SplitWriter::add(std::span<const int32_t> document, int64_t text_bytes) {
  check(!document.empty(), "a document without tokens");
  bool begins = true;
  while (!document.empty()) {
    if (!shard_) begin_shard();
    if (std::exchange(begins, false)) starts_.push_back(static_cast<uint64_t>(shard_->tokens()));
    const int64_t room = options_.tokens_per_shard - shard_->tokens();
    const auto part =
        document.first(static_cast<size_t>(std::min<int64_t>(room, std::ssize(document))));
    shard_->append(part);
    for (const int32_t token : part) ++counts_[static_cast<size_t>(token)];
    split_.tokens += std::ssize(part);
    document = document.subspan(part.size());
    if (shard_->tokens() == options_.tokens_per_shard) end_shard();
  }
  ++split_.documents;
  split_.text_bytes += text_bytes;
}

ManifestSplit SplitWriter::finish() {
  if (shard_) end_shard();
  split_.unigram_entropy_nats = entropy_nats(counts_);
  return split_;
}

double entropy_nats(std::span<const int64_t> counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (const int64_t count : counts) {
    const double p = static_cast<double>(count) / total;
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

bool is_split_file(const std::string& file, const std::string& split) {
  std::string_view rest = file;
  const auto take = [&rest](std::string_view begin) {
    const bool there = rest.starts_with(begin);
    if (there) rest.remove_prefix(begin.size());
    return there;
  };
  if (!take(split) || !take("_")) return false;
  const std::string_view number = rest.substr(0, kNumberDigits);
  if (number.size() != kNumberDigits ||
      number.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  rest.remove_prefix(kNumberDigits);
  if (!take(".bin") && !take(".idx")) return false;
  return rest.empty() || rest == ".tmp";
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train";
constexpr const char* kValidation = "val";
constexpr const char* kUnfinished = ".mpretrain_unfinished";  // directory inside the output
constexpr size_t kBatchBytes = size_t{256} << 10;             // of text per worker and batch

// Elements of several documents in one vector, because separate allocations would be made by one
// thread and freed by another.
template <class Elements>
class Documents {
 public:
  Elements elements;  // of all documents; those after the last end() belong to the next

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
  int64_t input_bytes_read = 0;  // by the corpus, when the batch was complete
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

bool is_own_file(const std::string& file) {
  return file == kManifestName || is_split_file(file, kTrain) || is_split_file(file, kValidation);
}

std::vector<fs::path> earlier_output(const std::string& directory) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_own_file(entry.path().filename().string())) found.push_back(entry.path());
  return found;
}

void make_directory(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (!failure && !fs::is_directory(path, failure))
    failure = std::make_error_code(std::errc::not_a_directory);
  if (failure)
    throw error("{}: cannot be used as the output directory: {}", path, failure.message());
}

// Creates the directory. Throws if it must not be written to; existing contents are unchanged.
void prepare_directory(const TokenizeOptions& options, const Tokenizer& tokenizer) try {
  make_directory(options.output);
  const std::string copy = tokenizer_in(options.output);
  if (!copy.empty() && !options.overwrite && Tokenizer::load(copy).hash() != tokenizer.hash())
    throw error(
        "{}: is not the tokenizer {}; choose another directory, or replace it with --overwrite",
        copy, tokenizer.path());
  const std::vector<fs::path> earlier = earlier_output(options.output);
  if (!earlier.empty() && !options.overwrite)
    throw error(
        "{}: contains {} of an earlier run; choose another directory, or replace it with "
        "--overwrite",
        options.output, earlier.front().filename().string());
} catch (const fs::filesystem_error& failure) {
  throw error("{}: cannot be used as the output directory: {}", options.output, failure.what());
}

// Holds the shards until all are complete, so that a failing run leaves an earlier one's unchanged.
// Removed at the end, with leftovers of a killed run.
class Unfinished {
 public:
  Unfinished(FileSystem& fs, const std::string& output)
      : fs_(fs), output_(output), path_(output + "/" + kUnfinished) {
    fs_.remove_tree(path_);
    fs_.create_directories(path_);
  }
  ~Unfinished() { remove_quietly(fs_, path_); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Replaces an earlier run's shards. The earlier manifest is removed first: without it the rest
  // counts as incomplete.
  void publish() const {
    const std::string manifest = output_ + "/" + kManifestName;
    if (fs_.exists(manifest)) fs_.remove_file(manifest);
    for (const fs::path& file : earlier_output(output_)) fs_.remove_file(file.string());
    for (const std::string& name : fs_.list_directory(path_))
      fs_.rename(path_ + "/" + name, output_ + "/" + name);
    fs_.sync_directory(output_);
  }

 private:
  FileSystem& fs_;
  std::string output_;
  std::string path_;
};

// `text` is a buffer for reading documents.
std::unique_ptr<TextBatch> read_text_batch(CorpusReader& corpus, std::string& text) {
  auto batch = std::make_unique<TextBatch>();
  while (batch->texts.elements.size() < kBatchBytes && corpus.next(text)) {
    batch->texts.elements += text;
    batch->texts.end();
  }
  batch->input_bytes_read = corpus.input_bytes_read();
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

// Tensor 2 of the data stream: 0 is the order of sequences, 1 the sample a tokenizer is trained on.
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
        train_({directory, kTrain, options.tokens_per_shard, vocab_size}, fs),
        validation_({directory, kValidation, options.tokens_per_shard, vocab_size}, fs) {}

  void add(const TextBatch& batch) {
    for (size_t i = 0; i < batch.texts.size(); ++i) {
      SplitWriter& split = is_validation(options_, number_++) ? validation_ : train_;
      if (!batch.tokens[i].empty()) split.add(batch.tokens[i], std::ssize(batch.texts[i]));
    }
  }

  std::map<std::string, ManifestSplit> finish() {
    if (number_ == 0)
      throw error("{}: no documents in these files", fmt::join(options_.corpus.patterns, ", "));
    const bool wanted = options_.validation_fraction > 0;
    if (train_.tokens() == 0 || (wanted && validation_.tokens() == 0))
      throw error(
          "none of the {} documents fell into the {} split with --validation-fraction {}; change "
          "it, or --seed",
          number_, train_.tokens() == 0 ? kTrain : kValidation, options_.validation_fraction);
    std::map<std::string, ManifestSplit> splits{{kTrain, train_.finish()}};
    if (wanted) splits[kValidation] = validation_.finish();
    return splits;
  }

  [[nodiscard]] int64_t tokens() const { return train_.tokens() + validation_.tokens(); }

 private:
  const TokenizeOptions& options_;
  SplitWriter train_;
  SplitWriter validation_;
  int64_t number_ = 0;  // of the next document
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run_pipeline(const TokenizeOptions& options, const Tokenizer& tokenizer, CorpusReader& corpus,
                  Splits& splits) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int workers = options.threads == 0 ? all : options.threads;
  const auto begin = std::chrono::steady_clock::now();
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
    const double rate = static_cast<double>(splits.tokens()) / seconds_since(begin);
    progress.update(batch->input_bytes_read, format_count(rate) + " tokens/s");
  }
}

nlohmann::json json_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  nlohmann::json json{{"patterns", options.corpus.patterns},
                      {"text_field", options.corpus.text_field},
                      {"on_bad_document", name_of(options.corpus.on_bad_document)},
                      {"max_document_bytes", options.corpus.max_document_bytes},
                      {"tokens_per_shard", options.tokens_per_shard},
                      {"validation_fraction", options.validation_fraction},
                      {"seed", options.seed},
                      {"prepend_bos", options.prepend_bos},
                      {"append_eos", options.append_eos}};
  if (tokenizer.kind() == TokenizerKind::kTokenizerJson)
    json["special_tokens"] = name_of(options.special_tokens);
  return json;
}

void write_manifest(const TokenizeOptions& options, const Tokenizer& tokenizer,
                    const Manifest& manifest, FileSystem& fs) {
  for (const char* const name : kTokenizerFiles)  // those of another kind
    if (const std::string copy = in_directory(options.output, name);
        name != tokenizer.file_name() && fs.exists(copy))
      fs.remove_file(copy);
  write_file_atomically(fs, in_directory(options.output, tokenizer.file_name()),
                        bytes_of(tokenizer.model_bytes()));
  manifest.save(options.output + "/" + kManifestName, fs);
}

}  // namespace

TokenizeResult tokenize_corpus(const TokenizeOptions& options, FileSystem& fs) {
  const auto begin = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  check_options(options, tokenizer);
  CorpusReader corpus(options.corpus);
  prepare_directory(options, tokenizer);

  TokenizeResult result;
  const Unfinished unfinished(fs, options.output);
  Splits splits(options, unfinished.path(), tokenizer.vocab_size(), fs);
  run_pipeline(options, tokenizer, corpus, splits);
  result.manifest = {.tokenizer = {.file = tokenizer.file_name(),
                                   .hash = tokenizer.hash(),
                                   .vocab_size = tokenizer.vocab_size(),
                                   .bos_id = tokenizer.bos_id(),
                                   .eos_id = tokenizer.eos_id()},
                     .splits = splits.finish(),
                     .options = json_of(options, tokenizer)};
  unfinished.publish();
  write_manifest(options, tokenizer, result.manifest, fs);
  result.corpus = corpus.stats();
  result.tokens = splits.tokens();
  result.seconds = seconds_since(begin);
  result.bytes_per_token =
      static_cast<double>(result.corpus.text_bytes) / static_cast<double>(result.tokens);
  result.tokens_per_second = static_cast<double>(result.tokens) / result.seconds;
  return result;
}

}  // namespace mpt
