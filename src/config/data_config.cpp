#include "config/data_config.h"

#include "core/json/config_fields.h"

namespace mpt {

void CorpusConfig::fields(Fields& f) {
  f.required("name", name, {.doc = "name of the corpus in logs and checkpoints"});
  f.required("files", files,
             {.doc = "its token shards: files or globs, relative to the working directory"});
  f.required("weight", weight,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "its part of the rows, as a ratio to the weights of the others; from 1/1000 "
                     "of their sum, or 0"});
}

void MixturePhaseConfig::fields(Fields& f) {
  f.required("from", from,
             {.exclusive_minimum = 0,
              .exclusive_maximum = 1,
              .doc = "part of the run's steps after which these weights hold"});
  f.required("weights", weights, {.doc = "a weight for each corpus of data.train, by its name"});
}

void DataConfig::fields(Fields& f) {
  f.optional("train", train,
             {.doc = "training token shards: files or globs, relative to the working directory; "
                     "or a list of corpora, each {\"name\", \"files\", \"weight\"}, mixed by "
                     "their weights"});
  f.optional("phases", phases,
             {.doc = "other weights for later parts of the run, each {\"from\", \"weights\"}, in "
                     "the order in which they begin"});
  f.optional("validation", validation,
             {.doc = "validation token shards; empty: no evaluation; or several sets by name, "
                     "each with a loss of its own: {\"web\": shards, \"books\": shards}"});
  f.optional("tokenizer", tokenizer,
             {.doc = "tokenizer of the shards, copied into exports and used by generate"});
  f.optional("pack", pack,
             {.doc = "true: rows are cut from the stream of all documents; false: one document a "
                     "row, truncated or padded"});
  f.optional("packing", packing,
             {.doc = "of packed rows: stream cuts the stream of all documents every seq_len "
                     "tokens; best_fit fills rows with whole documents and pads them, and cuts "
                     "only those longer than a row"});
  f.optional("attention", attention,
             {.doc = "what a token of a packed row sees: row, all earlier tokens; document, those "
                     "of its own document, from whose beginning positions count; nothing is "
                     "predicted across documents"});
  f.optional("shuffle", shuffle,
             {.doc = "visit sequences in a seeded random order, a new one each epoch"});
  f.optional("prefetch_steps", prefetch_steps,
             {.minimum = 1, .maximum = 1024, .doc = "batches to prefetch"});
  f.optional("changed_shards", changed_shards,
             {.doc = "what a resumed run does if a corpus that it has read has other shards now, "
                     "or the same in another order: refuse; accept: continue with them at the row "
                     "where it was"});
}

}  // namespace mpt
