#include "weights/source_texts.h"

namespace mpt {

std::vector<int64_t> SpecialIds::within(const nlohmann::json& ids, int64_t vocab_size) {
  std::vector<int64_t> found;
  for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array({ids}))
    if (is_token_id(id) && id >= 0 && id < vocab_size) found.push_back(id.get<int64_t>());
  return found;
}

int64_t SpecialIds::first(const nlohmann::json& ids, int64_t vocab_size) {
  const std::vector<int64_t> found = within(ids, vocab_size);
  return found.empty() ? -1 : found.front();
}

namespace {
constexpr const char* kBeginWithBos = "begin_with_bos";
}

nlohmann::json SourceTexts::json() const {
  nlohmann::json content{{kBeginWithBos, begin_with_bos}};
  for (const auto& [key, member] : kSpecialIdKeys) content[key] = ids.*member;
  return content;
}

SourceTexts SourceTexts::of_json(const nlohmann::json& json) {
  SourceTexts texts;
  if (!json.is_object()) return texts;
  texts.begin_with_bos = json.value(kBeginWithBos, nlohmann::json()) == true;
  for (const auto& [key, member] : kSpecialIdKeys)
    if (const auto found = json.find(key); found != json.end() && are_token_ids(*found))
      texts.ids.*member = *found;
  return texts;
}

}  // namespace mpt
