// Which text a run is trained and evaluated on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/attention_scope.h"
#include "core/json/config_fields.h"
#include "core/json/config_lists.h"
#include "data/packing.h"

namespace mpt {

// Training shards of one kind of text. The name is "" where data.train is a plain list of shards,
// which then is the only corpus.
struct CorpusConfig {
  std::string name{};
  std::vector<std::string> files{};  // or globs
  double weight = 1;                 // its part of the rows, as a ratio to those of the others

  bool operator==(const CorpusConfig&) const = default;

  static CorpusConfig of_texts(std::vector<std::string> files) {
    return {.files = std::move(files)};
  }
  [[nodiscard]] const std::vector<std::string>* as_texts() const {
    return name.empty() ? &files : nullptr;
  }

  template <class V>
  void fields(V& v) {
    v.required("name", name, {.doc = "name of the corpus in logs and checkpoints"});
    v.required("files", files,
               {.doc = "its token shards: files or globs, relative to the working directory"});
    v.required("weight", weight,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "its part of the rows, as a ratio to the weights of the others; from 1/1000 "
                       "of their sum, or 0"});
  }
};

// Weights of the corpora from some point of the run on.
struct MixturePhaseConfig {
  double from = 0;  // fraction of the run
  NamedNumbers weights{};

  bool operator==(const MixturePhaseConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.required("from", from,
               {.exclusive_minimum = 0,
                .exclusive_maximum = 1,
                .doc = "part of the run's steps after which these weights hold"});
    v.required("weights", weights, {.doc = "a weight for each corpus of data.train, by its name"});
  }
};

struct DataConfig {
  std::vector<CorpusConfig> train{};
  std::vector<MixturePhaseConfig> phases{};
  NamedTexts validation{};  // shards of each set; the name is "" where there is only one
  std::string tokenizer{};  // "" = none
  bool pack = true;
  Packing packing = Packing::kStream;
  AttentionScope attention = AttentionScope::kRow;
  bool shuffle = true;
  int64_t prefetch_steps = 2;

  bool operator==(const DataConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("train", train,
               {.doc = "training token shards: files or globs, relative to the working directory; "
                       "or a list of corpora, each {\"name\", \"files\", \"weight\"}, mixed by "
                       "their weights"});
    v.optional("phases", phases,
               {.doc = "other weights for later parts of the run, each {\"from\", \"weights\"}, in "
                       "the order in which they begin"});
    v.optional("validation", validation,
               {.doc = "validation token shards; empty: no evaluation; or several sets by name, "
                       "each with a loss of its own: {\"web\": shards, \"books\": shards}"});
    v.optional("tokenizer", tokenizer,
               {.doc = "tokenizer of the shards, copied into exports and used by generate"});
    v.optional("pack", pack,
               {.doc = "true: rows are cut from the stream of all documents; false: one document a "
                       "row, truncated or padded"});
    v.optional("packing", packing,
               {.doc = "of packed rows: stream cuts the stream of all documents every seq_len "
                       "tokens; best_fit fills rows with whole documents and pads them, and cuts "
                       "only those longer than a row"});
    v.optional(
        "attention", attention,
        {.doc = "what a token of a packed row sees: row, all earlier tokens; document, those "
                "of its own document, from whose beginning positions count; nothing is "
                "predicted across documents"});
    v.optional("shuffle", shuffle,
               {.doc = "visit sequences in a seeded random order, a new one each epoch"});
    v.optional("prefetch_steps", prefetch_steps,
               {.minimum = 1, .maximum = 1024, .doc = "batches to prefetch"});
  }

  // Shards of all corpora and all validation sets.
  [[nodiscard]] std::vector<std::string> all_files() const {
    std::vector<std::string> files;
    for (const CorpusConfig& corpus : train)
      files.insert(files.end(), corpus.files.begin(), corpus.files.end());
    for (const auto& [name, set] : validation) files.insert(files.end(), set.begin(), set.end());
    return files;
  }
};

}  // namespace mpt
