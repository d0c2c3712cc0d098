// The text that a run is trained and evaluated on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/attention_scope.h"
#include "core/enum_names.h"
#include "core/json/config_struct.h"
#include "data/packing.h"

namespace mpt {

// Training shards of one kind of text. The name is "" where data.train is a plain list of shards,
// which then is the only corpus.
struct CorpusConfig {
  std::string name{};
  std::vector<std::string> files{};  // or globs
  double weight = 1;                 // share of the rows, relative to the other weights

  bool operator==(const CorpusConfig&) const = default;

  static CorpusConfig of_texts(std::vector<std::string> files) {
    return {.files = std::move(files)};
  }
  [[nodiscard]] const std::vector<std::string>* as_texts() const {
    return name.empty() ? &files : nullptr;
  }

  void fields(Fields& f);
};

// Weights of the corpora from some point of the run on.
struct MixturePhaseConfig {
  double from = 0;  // fraction of the run
  NamedNumbers weights{};

  bool operator==(const MixturePhaseConfig&) const = default;

  void fields(Fields& f);
};

// How a resumed run treats shards that differ from those of its checkpoint.
enum class ChangedShards : uint8_t { kRefuse, kAccept };
template <>
struct EnumNames<ChangedShards> {
  static constexpr std::array<std::string_view, 2> kNames{"refuse", "accept"};
};

struct DataConfig {
  std::vector<CorpusConfig> train{};
  std::vector<MixturePhaseConfig> phases{};
  NamedTexts validation{};  // shards of each set; the name is "" if there is only one
  std::string tokenizer{};  // "" = none
  bool pack = true;
  Packing packing = Packing::kStream;
  AttentionScope attention = AttentionScope::kRow;
  bool shuffle = true;
  int64_t prefetch_steps = 2;
  ChangedShards changed_shards = ChangedShards::kRefuse;

  bool operator==(const DataConfig&) const = default;

  void fields(Fields& f);

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
