#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "data/token_shard.h"
#include "text/corpus/tokenize.h"
#include "text/tokenizer_training.h"

namespace mpt {
namespace {

void add_corpus_options(CLI::App& verb, CorpusOptions& corpus) {
  add_texts(verb, "--input", corpus.patterns,
            "text files or globs: *.txt, *.md, *.jsonl, *.json, each also .gz or .zst, *.parquet; "
            "or -, standard input; may be repeated")
      ->required();
  add_choice(verb, "--as", corpus.as,
             "what all inputs hold, whatever their names: text, jsonl, parquet");
  add_text(verb, "--text-field", corpus.text_field,
           "JSON key or Parquet column that holds the text; by default text");
  add_choice(verb, "--on-bad-document", corpus.on_bad_document,
             "what to do on invalid UTF-8 or a line without the text field: error, skip");
  add_count(verb, "--max-document-bytes", corpus.max_document_bytes,
            {.least = 1, .most = int64_t{1} << 30}, "longer documents are split");
}

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// --- tokenizer -----------------------------------------------------------------------------------

std::string summary_of(const TokenizerTrainingResult& result) {
  return fmt::format(
      "tokenizer        {}\n"
      "pieces           {}\n"
      "hash             {}\n"
      "trained on       {}, {} of {}\n"
      "time             {}\n",
      result.path, result.vocab_size, result.hash, counted(result.sample_lines, "line"),
      size_text(result.sample_bytes), size_text(result.text_bytes),
      format_duration(result.seconds));
}

void add_tokenizer(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("tokenizer", "Train a SentencePiece tokenizer on text");
  const auto options = std::make_shared<TokenizerTrainingOptions>();
  add_corpus_options(*verb, options->corpus);
  add_text(*verb, "--output", options->output, "file to write; .model is appended if missing")
      ->required();
  add_count(*verb, "--vocab-size", options->vocab_size, {.least = 260, .most = 1 << 20}, "pieces");
  add_count(*verb, "--sample-bytes", options->sample_bytes, {.least = 1},
            "bytes of text to train on, sampled from the whole input");
  add_real(*verb, "--character-coverage", options->character_coverage, {.least = 0.98, .most = 1},
           "fraction of the text's characters that get a piece; the rest fall back to bytes");
  add_seed(*verb, options->seed, "seed for sampling the text");
  verb->add_flag("--overwrite", options->overwrite, "replace an earlier tokenizer");
  verb->callback([options] { write_output(summary_of(train_tokenizer(*options))); });
}

// --- tokenize ------------------------------------------------------------------------------------

double ratio(int64_t a, int64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

std::string summary_of(const std::string& name, const ManifestSplit& split) {
  return fmt::format("{:<17}{}, {} in {}, {:.3f} bytes/token, unigram entropy {:.4f} nats\n", name,
                     counted(split.documents, "document"), counted(split.tokens, "token"),
                     counted(std::ssize(split.shards), "shard"),
                     ratio(split.text_bytes, split.tokens), split.unigram_entropy_nats);
}

std::string meaning_of(DocumentUnit unit) {
  switch (unit) {
    case DocumentUnit::kParagraph:
      return "a paragraph of plain text: a blank line ends it";
    case DocumentUnit::kFile:
      return "a file of plain text";
    case DocumentUnit::kLine:
      break;
  }
  return "a line of plain text";
}

std::string summary_of(const TokenizeResult& result, const TokenizeOptions& options) {
  const CorpusStats& corpus = result.corpus;
  std::string text = fmt::format("output           {}\n", options.output);
  text += fmt::format(
      "documents        {} from {}, {} ({} without text and {} unreadable skipped, {} of long "
      "ones)\n",
      corpus.documents, counted(result.files, "file"), size_text(corpus.text_bytes), corpus.empty,
      corpus.bad, counted(corpus.cuts, "cut"));
  if (result.plain_text)
    text += fmt::format("a document is    {} (--document)\n",
                        meaning_of(options.corpus.document.value_or(DocumentUnit::kParagraph)));
  if (result.continued > 0)
    text += fmt::format("resumed          after {} of an interrupted run\n",
                        counted(result.continued, "document"));
  for (const auto& [name, split] : result.manifest.splits) text += summary_of(name, split);
  return text + fmt::format("all              {}, {:.3f} bytes/token, {} tokens/s, {}\n",
                            counted(result.tokens, "token"), result.bytes_per_token,
                            format_count(result.tokens_per_second),
                            format_duration(result.seconds));
}

void add_tokenize(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("tokenize", "Turn text into token shards");
  const auto options = std::make_shared<TokenizeOptions>();
  add_corpus_options(*verb, options->corpus);
  add_choice(*verb, "--document", options->corpus.document,
             "what a document of plain text is: paragraph (default; a blank line ends it), file, "
             "line");
  add_text(*verb, "--tokenizer", options->tokenizer,
           "SentencePiece model, tokenizer.json or tiktoken file")
      ->required();
  add_text(*verb, "--output", options->output, "output directory")->required();
  add_real(*verb, "--validation-fraction,--val-fraction", options->validation_fraction,
           {.least = 0, .most = 1}, "fraction of documents held out as the val split; below 1");
  add_count(*verb, "--shard-tokens", options->tokens_per_shard,
            {.least = 1, .most = kMaxTokensPerShard}, "maximum tokens per shard");
  add_seed(*verb, options->seed, "seed for choosing validation documents");
  add_threads(*verb, options->threads);
  verb->add_flag("--bos", options->prepend_bos, "prepend BOS to each document");
  verb->add_flag_callback(
      "--no-eos", [options] { options->append_eos = false; }, "do not append EOS to each document");
  add_choice(*verb, "--special-tokens", options->special_tokens,
             "special tokens of a tokenizer.json that a document spells: match: they become these "
             "tokens, text: they are text like any other");
  verb->add_flag("--overwrite", options->overwrite, "replace the shards of an earlier run");
  verb->callback([options] { write_output(summary_of(tokenize_corpus(*options), *options)); });
}

}  // namespace

void add_data_verbs(CLI::App& program) {
  add_tokenizer(program);
  add_tokenize(program);
}

}  // namespace mpt
