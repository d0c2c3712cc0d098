#include "text/tokenizer_training.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include <sentencepiece_trainer.h>

#include "core/check.h"
#include "core/io/output_file.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text/library_message.h"
#include "core/text/units.h"
#include "core/text/utf8.h"
#include "data/shuffle.h"
#include "text/line_sample.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

// SentencePiece skips longer lines and aborts on words of 2^16 characters, so longer lines are cut.
constexpr size_t kMaxLineBytes = 4096;
// SentencePiece reserves this character and skips every line containing it.
constexpr std::string_view kReserved = "\xE2\x96\x85";
// Three control pieces, 256 bytes and at least one character.
constexpr int64_t kLeastVocabSize = 3 + 256 + 1;
constexpr int64_t kMostVocabSize = 1 << 20;

void check_options(const TokenizerTrainingOptions& options) {
  if (options.vocab_size < kLeastVocabSize || options.vocab_size > kMostVocabSize)
    throw error("vocab_size is {}; expected {} (256 bytes, 3 control pieces, one character) to {}",
                options.vocab_size, kLeastVocabSize, kMostVocabSize);
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1.0))
    throw error("character_coverage is {}; expected 0.98 to 1", options.character_coverage);
  if (options.sample_bytes < 1)
    throw error("sample_bytes is {}; expected at least 1", options.sample_bytes);
  if (options.output.empty()) throw error("no output file given for the tokenizer");
}

// Opens the output file before the work starts; creates its directory.
std::unique_ptr<OutputFile> open_output(const TokenizerTrainingOptions& options) {
  FileSystem& fs = posix_file_system();
  const bool is_stream =
      names_descriptor(followed(options.output)) || fs.kind(options.output) == FileKind::kOther;
  const bool complete = is_stream || options.output.ends_with(".model");
  const std::string path = complete ? options.output : options.output + ".model";
  if (!is_stream && fs.kind(path) == FileKind::kRegular && !options.overwrite)
    throw error("{}: already exists; choose another name, or replace it with --overwrite", path);
  fs.create_directories(parent_directory(path));
  return std::make_unique<OutputFile>(fs, path);
}

void add_lines(std::string_view document, LineSample& sample) {
  while (!document.empty()) {
    const size_t end = std::min(document.find('\n'), document.size());
    std::string_view line = document.substr(0, end);
    document.remove_prefix(std::min(end + 1, document.size()));
    while (!line.empty()) {
      const std::string_view piece = line.substr(0, cut_position(line, kMaxLineBytes));
      line.remove_prefix(piece.size());
      if (!is_blank(piece) && piece.find(kReserved) == std::string_view::npos) sample.add(piece);
    }
  }
}

void sample_corpus(CorpusReader& corpus, LineSample& sample) {
  Progress progress({.label = "read text", .total = corpus.input_bytes()});
  std::string document;
  while (corpus.next(document)) {
    add_lines(document, sample);
    progress.update(corpus.input_bytes_read(),
                    format_bytes(static_cast<double>(sample.bytes())) + " sampled");
  }
}

class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

// The trainer reports no progress; this shows that it is alive, and for how long.
class Heartbeat {
 public:
  Heartbeat(std::string label, int64_t lines)
      : progress_({.label = std::move(label)}),
        thread_([this, lines](std::stop_token stop) { beat(stop, lines); }) {}

 private:
  void beat(const std::stop_token& stop, int64_t lines) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    while (!stopped.wait_for(lock, stop, std::chrono::seconds(1),
                             [&] { return stop.stop_requested(); }))
      progress_.update(lines, "lines of text");
  }

  Progress progress_;
  std::jthread thread_;
};

std::unordered_map<std::string, std::string> trainer_arguments(
    const TokenizerTrainingOptions& options) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(options.vocab_size)},
          {"character_coverage", fmt::format("{}", options.character_coverage)},
          {"byte_fallback", "true"},
          {"split_digits", "true"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"unk_id", "0"},
          {"bos_id", "1"},
          {"eos_id", "2"},
          {"pad_id", "-1"},
          {"input_sentence_size", "0"},
          {"minloglevel", "2"}};  // errors only; they are also returned as a status
}

// Parses the number after `words` in a library message; 0 if absent.
int64_t number_behind(std::string_view message, std::string_view words) {
  const size_t at = message.find(words);
  return at == std::string_view::npos
             ? 0
             : std::atoll(std::string(message.substr(at + words.size())).c_str());
}

Error training_error(const TokenizerTrainingOptions& options, std::string_view message) {
  if (const int64_t most = number_behind(message, "Please set it to a value <= "); most > 0)
    return error(
        "--vocab-size: vocab_size is {}, but the text has only enough different words for {}; add "
        "text, or use at most {}",
        options.vocab_size, most, most);
  if (const int64_t least = number_behind(message, fmt::format("{} vs ", options.vocab_size));
      least > 0)
    return error(
        "--vocab-size: vocab_size is {}, but the text's characters alone need {}; raise it or "
        "lower --character-coverage",
        options.vocab_size, least);
  return error("the tokenizer cannot be trained: {}", library_message(message));
}

std::string learn_pieces(const TokenizerTrainingOptions& options,
                         const std::vector<std::string>& lines) {
  const Heartbeat heartbeat(fmt::format("learn {} pieces", options.vocab_size),
                            static_cast<int64_t>(lines.size()));
  LineIterator iterator(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &iterator, &model);
  if (!status.ok()) throw training_error(options, status.error_message());
  return model;
}

}  // namespace

TokenizerTrainingResult train_tokenizer(const TokenizerTrainingOptions& options) {
  check_options(options);
  const auto begin = std::chrono::steady_clock::now();
  CorpusReader corpus(options.corpus);
  const std::unique_ptr<OutputFile> output = open_output(options);
  LineSample sample(options.seed, options.sample_bytes);
  sample_corpus(corpus, sample);
  const int64_t sample_bytes = sample.bytes();
  const std::vector<std::string> lines = sample.take();
  if (lines.empty())
    throw error("{}: no text to train a tokenizer on", fmt::join(options.corpus.patterns, ", "));

  const Tokenizer tokenizer(output->path(), {.bytes = learn_pieces(options, lines)});
  output->append(bytes_of(tokenizer.model_bytes()));
  output->commit();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return {.path = output->path(),
          .hash = tokenizer.hash(),
          .vocab_size = tokenizer.vocab_size(),
          .text_bytes = corpus.stats().text_bytes,
          .sample_bytes = sample_bytes,
          .sample_lines = static_cast<int64_t>(lines.size()),
          .seconds = elapsed.count()};
}

}  // namespace mpt
