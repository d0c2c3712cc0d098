#include "core/json/config_reader.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/text.h"

namespace mpt {
namespace {

// "at least 1 and less than 2"; empty if there are no bounds.
std::string range_of(const FieldInfo& info) {
  std::vector<std::string> bounds;
  if (info.minimum) bounds.push_back(fmt::format("at least {}", *info.minimum));
  if (info.exclusive_minimum)
    bounds.push_back(fmt::format("greater than {}", *info.exclusive_minimum));
  if (info.maximum) bounds.push_back(fmt::format("at most {}", *info.maximum));
  if (info.exclusive_maximum)
    bounds.push_back(fmt::format("less than {}", *info.exclusive_maximum));
  return fmt::format("{}", fmt::join(bounds, " and "));
}

bool has_control_characters(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// The direct keys of section `path`, relative to it: "rule", "lr_additive".
std::vector<std::string> keys_of_section(const std::vector<std::string>& known,
                                         const std::string& path) {
  const std::string prefix = path.empty() ? "" : path + ".";
  std::vector<std::string> keys;
  for (const std::string& candidate : known)
    if (candidate.starts_with(prefix) && candidate.find('.', prefix.size()) == std::string::npos)
      keys.push_back(candidate.substr(prefix.size()));
  return keys;
}

}  // namespace

void throw_problems(const Problems& problems) {
  constexpr size_t kMaxShown = 20;
  if (problems.empty()) return;
  const std::vector<std::string> shown(problems.begin(),
                                       problems.begin() + std::min(problems.size(), kMaxShown));
  const size_t hidden = problems.size() - shown.size();
  throw error("{}{}", fmt::join(shown, "\n"),
              hidden ? fmt::format("\n... and {} more", hidden) : "");
}

void throw_many_problems(const Problems& problems) {
  constexpr size_t kMany = 100;
  if (problems.size() >= kMany) throw_problems(problems);
}

const Json* FieldReader::find(std::string_view key) const {
  const auto found = node_.find(std::string(key));
  return found == node_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::convert(const char* key, const Json& value, bool& member, const FieldInfo&) {
  if (value.is_boolean())
    member = value.get<bool>();
  else
    report(key, fmt::format("expected true or false, found {}", describe(value)));
}

void FieldReader::convert(const char* key, const Json& value, double& member,
                          const FieldInfo& info) {
  if (!value.is_number())
    return report(key, fmt::format("expected a number, found {}", describe(value)));
  if (in_range(key, value.get<double>(), value, info)) member = value.get<double>();
}

void FieldReader::convert(const char* key, const Json& value, int64_t& member,
                          const FieldInfo& info) {
  constexpr double kLimit = 0x1p63;
  const double real = value.is_number() ? value.get<double>() : 0.5;
  if (real != std::trunc(real))
    return report(key, fmt::format("expected an integer, found {}", describe(value)));
  if (real < -kLimit || real >= kLimit)
    return report(key,
                  fmt::format("must be an integer of at most 64 bits, found {}", describe(value)));
  if (in_range(key, real, value, info)) member = value.get<int64_t>();
}

void FieldReader::convert(const char* key, const Json& value, uint64_t& member,
                          const FieldInfo& info) {
  constexpr double kLimit = 0x1p64;
  const double real = value.is_number() ? value.get<double>() : 0.5;
  if (real != std::trunc(real))
    return report(key, fmt::format("expected an integer, found {}", describe(value)));
  if (real < 0 || (real >= kLimit && !value.is_number_unsigned()))
    return report(key,
                  fmt::format("must be at least 0 and less than 2^64, found {}", describe(value)));
  if (in_range(key, real, value, info)) member = value.get<uint64_t>();
}

void FieldReader::convert(const char* key, const Json& value, std::string& member,
                          const FieldInfo&) {
  if (!value.is_string())
    return report(key, fmt::format("expected a string, found {}", describe(value)));
  if (has_control_characters(value.get_ref<const std::string&>()))
    return report(key,
                  fmt::format("control characters are not accepted, found {}", describe(value)));
  member = value.get<std::string>();
}

void FieldReader::convert(const char* key, const Json& value, std::vector<std::string>& member,
                          const FieldInfo& info) {
  const Json list = value.is_array() ? value : Json::array({value});
  std::vector<std::string> texts;
  for (const Json& item : list) {
    if (!item.is_string())
      return report(key, fmt::format("expected a list of strings, found {}", describe(value)));
    convert(key, item, texts.emplace_back(), info);
  }
  member = texts;
}

void FieldReader::convert(const char* key, const Json& value, NamedNumbers& member,
                          const FieldInfo&) {
  if (!value.is_object() || !every(value, &Json::is_number))
    return report(key,
                  fmt::format("expected an object of numbers by name, found {}", describe(value)));
  member.clear();
  for (const auto& item : value.items())
    member.emplace_back(item.key(), item.value().get<double>());
}

void FieldReader::convert(const char* key, const Json& value, NamedTexts& member,
                          const FieldInfo& info) {
  const Json named = value.is_object() ? value : Json{{"", value}};
  NamedTexts all;
  for (const auto& item : named.items()) {
    if (item.value().is_null()) continue;
    if (!is_texts(item.value()))
      return report(key, fmt::format("expected a list of strings, or an object of such lists by "
                                     "name, found {}",
                                     describe(item.value())));
    std::vector<std::string> texts;
    convert(key, item.value(), texts, info);
    if (value.is_object() || !texts.empty()) all.emplace_back(item.key(), std::move(texts));
  }
  member = std::move(all);
}

bool FieldReader::in_range(const char* key, double value, const Json& shown,
                           const FieldInfo& info) {
  const bool inside = (!info.minimum || value >= *info.minimum) &&
                      (!info.maximum || value <= *info.maximum) &&
                      (!info.exclusive_minimum || value > *info.exclusive_minimum) &&
                      (!info.exclusive_maximum || value < *info.exclusive_maximum);
  if (!inside) report(key, fmt::format("must be {}, found {}", range_of(info), shown.dump()));
  return inside;
}

void FieldReader::report(std::string_view key, const std::string& what) {
  const std::string path = join_key_path(path_, key);
  bad_keys_.emplace(key);
  found_.problems.push_back(fmt::format("{}: {}: {}", document_.source_of(path), path, what));
  throw_many_problems(found_.problems);
}

std::optional<std::string> key_meant_by(std::string_view word,
                                        std::span<const UsualSpelling> usual) {
  const std::string path = plain_spelling(word), key = path.substr(path.rfind('.') + 1);
  for (const std::string& written : {path, key})
    for (const UsualSpelling& entry : usual)
      if (entry.written == written) return std::string(entry.meant);
  return std::nullopt;
}

void FieldReader::report_unknown_keys() {
  const std::vector<std::string> keys = keys_of_section(names_.known, path_);
  for (const auto& item : node_.items())
    if (std::ranges::find(keys, item.key()) == keys.end())
      report(item.key(), "unknown key; " + suggestion(item.key()));
}

// Suggests a usual spelling from elsewhere, the nearest key of this section, the same key in
// another section, or a few similar keys.
std::string FieldReader::suggestion(const std::string& key) const {
  constexpr int64_t kFew = 5;
  const auto meant = [](std::string_view name) {
    return fmt::format("did you mean \"{}\"?", name);
  };
  const std::vector<std::string> keys = keys_of_section(names_.known, path_);
  if (const auto usual = key_meant_by(join_key_path(path_, key), names_.usual.keys))
    return meant(*usual);
  if (const auto nearest = nearest_name(plain_spelling(key), keys)) return meant(*nearest);
  for (const std::string& path : names_.known)
    if (path == key || path.ends_with("." + key)) return meant(path);
  if (std::ssize(keys) <= kFew) return fmt::format("valid keys here: {}", fmt::join(keys, ", "));
  return fmt::format("the nearest of the {} keys here: {}", keys.size(),
                     fmt::join(nearest_names(plain_spelling(key), keys, kFew), ", "));
}

std::string FieldReader::value_hint(const Json& value,
                                    const std::vector<std::string>& names) const {
  if (!value.is_string()) return "";
  const std::string written = plain_spelling(value.get_ref<const std::string&>());
  std::optional<std::string> meant = nearest_name(written, names);
  for (const UsualSpelling& entry : names_.usual.values)
    if (entry.written == written && std::ranges::find(names, entry.meant) != names.end())
      meant = entry.meant;
  if (std::ranges::find(names, written) != names.end()) meant = written;
  return meant ? fmt::format("; did you mean \"{}\"?", *meant) : "";
}

void FieldReader::report_missing(const char* key, const FieldInfo& info) {
  const Condition& condition = info.only_with.key.empty() ? chosen_ : info.only_with;
  if (!condition.holds || bad_keys_.contains(condition.key)) return;
  const std::string path = join_key_path(path_, key);
  const std::string need =
      condition.key.empty()
          ? ""
          : fmt::format(" by {} = {}", join_key_path(path_, condition.key), condition.actual);
  bad_keys_.emplace(key);
  found_.problems.push_back(fmt::format("{}: {}: missing; it is required{} ({})",
                                        document_.source_of(node_.contains(key) ? path : path_),
                                        path, need, info.doc));
}

// Each key is handled once, even if several alternatives have it.
void FieldReader::pass_over_others(const char* choice, const Alternatives& alternatives) {
  const auto has = [&](size_t i, const std::string& key) {
    return std::ranges::find(alternatives.keys[i], key) != alternatives.keys[i].end();
  };
  const std::string choice_path = join_key_path(path_, choice);
  for (const auto& item : node_.items()) {
    std::vector<std::string_view> owners;
    for (size_t i = 0; i < alternatives.names.size(); ++i)
      if (has(i, item.key())) owners.push_back(alternatives.names[i]);
    if (item.value().is_null() || owners.empty() || has(alternatives.chosen, item.key())) continue;
    const std::string path = join_key_path(path_, item.key());
    if (found_.left_out != nullptr && document_.is_above(choice_path, path))
      found_.left_out->push_back(fmt::format("{} ({})", path, document_.source_of(path)));
    else
      report_meaningless(item.key(), {.key = choice,
                                      .accepted = fmt::format("{}", fmt::join(owners, " or ")),
                                      .actual = alternatives.names[alternatives.chosen],
                                      .holds = false});
  }
}

void FieldReader::report_meaningless(std::string_view key, const Condition& condition) {
  if (bad_keys_.contains(condition.key)) return;
  const std::string path = join_key_path(path_, key);
  const std::string other = join_key_path(path_, condition.key);
  report(key, fmt::format("requires {} = {}, but {} is {} ({}); remove the key, or unset an "
                          "included file's value with --set {}=null",
                          other, condition.accepted, other, condition.actual,
                          document_.source_of(other), path));
}

}  // namespace mpt
