#include "train/survival_json.h"

namespace mpt {
namespace {

nlohmann::ordered_json tensor_json(const UpdateStatistics& tensor) {
  nlohmann::ordered_json json{{"weights", tensor.weights}};
  for (size_t branch = 0; branch < size_t(tensor.branches); ++branch) {
    nlohmann::ordered_json outcomes;
    for (size_t outcome = 0; outcome < size_t(kOutcomes); ++outcome)
      outcomes[std::string(EnumNames<UpdateOutcome>::kNames[outcome])] = tensor.outcomes[branch][outcome];
    json[std::string(EnumNames<Branch>::kNames[branch])] = std::move(outcomes);
  }
  json["dragged"] = tensor.dragged;
  json["drag_log2"] = tensor.drag_log2;
  json["saturated_blocks"] = tensor.saturated_blocks;
  return json;
}

}  // namespace

nlohmann::ordered_json update_statistics_json(std::span<const UpdateStatistics> tensors) {
  nlohmann::ordered_json all;
  for (const UpdateStatistics& tensor : tensors) all[tensor.name] = tensor_json(tensor);
  return {{"bucket_edges", bucket_edges()}, {"tensors", std::move(all)}};
}

nlohmann::ordered_json fp8_scaling_json(std::span<const Fp8OperandState> operands) {
  nlohmann::ordered_json all;
  for (const auto& [name, state] : operands)
    all[name] = {{"scale", state.scale},
                 {"amax", state.last_amax},
                 {"history_amax", state.history_amax},
                 {"frozen", state.frozen}};
  return all;
}

}  // namespace mpt
