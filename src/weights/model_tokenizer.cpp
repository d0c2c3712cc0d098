#include "weights/model_tokenizer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "config/run_copies.h"
#include "core/io/run_paths.h"
#include "data/manifest.h"
#include "weights/loaded_model.h"

namespace mpt {
namespace {

// The manifest stored by the run, else the one next to its data.
std::optional<Manifest> manifest_of_model(const RunConfig& config, const std::string& run) {
  const std::string kept = in_directory(run, kRunManifest);
  if (!run.empty() && has_optional_file(posix_file_system(), kept)) return Manifest::load(kept);
  std::optional<FoundManifest> found = manifest_of(config.data);
  return found ? std::optional(std::move(found->manifest)) : std::nullopt;
}

// `run` is the run's directory, "" if it has none yet.
TokenizerFile tokenizer_of_run(const RunConfig& config, const std::string& run,
                               const SourceTexts& source, const std::string& given) {
  TokenizerFile file{.path = "", .prepend_bos = source.begin_with_bos, .data_hash = ""};
  if (const std::optional<Manifest> manifest = manifest_of_model(config, run)) {
    const nlohmann::json bos = manifest->options.value("prepend_bos", nlohmann::json(false));
    file.prepend_bos = bos.is_boolean() && bos.get<bool>();
    file.data_hash = manifest->tokenizer.hash;
  }
  const std::string kept = run.empty() ? "" : tokenizer_in(run);
  if (!given.empty())
    file.path = given;
  else if (!kept.empty())
    file.path = kept;
  else
    file.path = tokenizer_of(config.data);
  return file;
}

}  // namespace

TokenizerFile find_tokenizer(const SavedWeights& model, const std::string& given) {
  return tokenizer_of_run(model.config, run_of_checkpoint(model.checkpoint), model.source, given);
}

TokenizerFile find_tokenizer(const RunConfig& config, const std::string& given) {
  return tokenizer_of_run(config, "", {}, given);
}

std::string missing_tokenizer(const RunConfig& config) {
  const std::string named =
      config.data.tokenizer.empty()
          ? "data.tokenizer of its config is not set"
          : fmt::format("data.tokenizer of its config, '{}', was not found (from {})",
                        config.data.tokenizer, std::filesystem::current_path().string());
  return fmt::format(
      "the model's tokenizer is unknown: its run directory has none of {}, {}, and there is no {} "
      "next to its data; name it with --tokenizer",
      fmt::join(kTokenizerFiles, ", "), named, kManifestName);
}

Tokenizer load_tokenizer(const RunConfig& config, const TokenizerFile& file) {
  if (file.path.empty()) throw error("{}", missing_tokenizer(config));
  Tokenizer tokenizer = Tokenizer::load(file.path);
  if (tokenizer.vocab_size() > config.model.vocab_size)
    throw error(
        "{} has {} pieces, the model has {}; it is not the tokenizer that the model was trained "
        "with",
        file.path, tokenizer.vocab_size(), config.model.vocab_size);
  if (!file.data_hash.empty() && tokenizer.hash() != file.data_hash)
    spdlog::warn("{} is not the tokenizer of the shards named by the run's config", file.path);
  return tokenizer;
}

}  // namespace mpt
