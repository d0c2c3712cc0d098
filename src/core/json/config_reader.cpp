#include "core/json/config_reader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/suggestion.h"

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

// Direct keys of section `path`, relative to it: "rule", "lr_additive".
std::vector<std::string> keys_of_section(const std::vector<std::string>& known,
                                         const std::string& path) {
  const std::string prefix = path.empty() ? "" : path + ".";
  std::vector<std::string> keys;
  for (const std::string& candidate : known)
    if (candidate.starts_with(prefix) && candidate.find('.', prefix.size()) == std::string::npos)
      keys.push_back(candidate.substr(prefix.size()));
  return keys;
}

bool every(const Json& list, bool (Json::*is)() const noexcept) {
  return std::all_of(list.begin(), list.end(), [&](const Json& item) { return (item.*is)(); });
}

// Whether it is a string, or a list of strings only.
bool is_texts(const Json& value) {
  return value.is_string() || (value.is_array() && every(value, &Json::is_string));
}

// Reads one section, or one struct of a list.
class FieldReader {
 public:
  struct Found {
    Problems& problems;
    LeftOut* left_out;  // null: dropping keys is an error
  };
  struct Names {
    const std::vector<std::string>& known;  // key paths of the whole config
    const UsualSpellings& usual;
  };
  FieldReader(const JsonDocument& document, const Json& node, std::string path, Names names,
              Found found)
      : document_(document), node_(node), path_(std::move(path)), names_(names), found_(found) {}

  void read(const Fields& fields) {
    report_unknown_keys();
    read_each(fields);
  }

 private:
  struct Alternatives {
    std::vector<std::string> names;
    std::vector<std::vector<std::string>> keys;  // per alternative
    size_t chosen;
  };
  // The alternative of a choice whose keys are being read.
  struct Chosen {
    std::string_view key{}, name{};
  };

  void read_each(const Fields& fields) {
    for (const Field& field : fields) read(field);
  }
  void read(const Field& field);
  void read_section(const char* key, const Fields& section);
  void read_choice(const char* key, Choice& choice, const FieldInfo& info);

  void convert(const char* key, const Json& value, bool& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, int64_t& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, uint64_t& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, double& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, std::string& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, std::vector<std::string>& member,
               const FieldInfo& info);
  void convert(const char* key, const Json& value, NamedNumbers& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, NamedTexts& member, const FieldInfo& info);
  template <class T>
  void convert(const char* key, const Json& value, std::optional<T>& member,
               const FieldInfo& info) {
    T inner{};
    convert(key, value, inner, info);
    member = inner;
  }
  void convert(const char* key, const Json& value, const EnumMember& member);
  void convert(const char* key, const Json& value, StructList& member, const FieldInfo& info);

  // Value of a key in this section; null if absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  bool in_range(const char* key, double value, const Json& shown, const FieldInfo& info);
  void report(std::string_view key, const std::string& what);
  void report_unknown_keys();
  [[nodiscard]] std::string suggestion(const std::string& key) const;
  // "; did you mean ...?", or "".
  [[nodiscard]] std::string value_hint(const Json& value,
                                       const std::vector<std::string>& names) const;
  void report_missing(const char* key, const FieldInfo& info);
  // Reports a key that has a meaning only if `other` is one of `accepted`.
  void report_meaningless(std::string_view key, std::string_view other, const std::string& accepted,
                          std::string_view actual);
  void pass_over_others(const char* choice, const Alternatives& alternatives);

  const JsonDocument& document_;
  const Json& node_;
  std::string path_;
  Names names_;
  Found found_;
  Chosen chosen_{};
  std::set<std::string, std::less<>> bad_keys_;
};

const Json* FieldReader::find(std::string_view key) const {
  const auto found = node_.find(std::string(key));
  return found == node_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::read(const Field& field) {
  if (const auto* section = std::get_if<std::shared_ptr<Fields>>(&field.member))
    return read_section(field.key, **section);
  if (Choice* const* choice = std::get_if<Choice*>(&field.member))
    return read_choice(field.key, **choice, field.info);
  const Json* value = find(field.key);
  if (value == nullptr) {
    if (field.is_required) report_missing(field.key, field.info);
    return;
  }
  const Condition& condition = field.info.condition();
  if (!condition.holds())
    return report_meaningless(field.key, condition.key, condition.accepted_names(),
                              condition.member.name());
  std::visit(
      [&]<class M>(const M& member) {
        if constexpr (std::is_same_v<M, EnumMember>)
          convert(field.key, *value, member);
        else if constexpr (!std::is_same_v<M, Choice*> &&
                           !std::is_same_v<M, std::shared_ptr<Fields>>)
          convert(field.key, *value, *member, field.info);
      },
      field.member);
}

void FieldReader::read_section(const char* key, const Fields& section) {
  static const Json kNothing = Json::object();
  const Json* value = find(key);
  if (value && !value->is_object())
    return report(key, fmt::format("expected a section {{...}}, found {}", describe(*value)));
  FieldReader(document_, value ? *value : kNothing, join_key_path(path_, key), names_, found_)
      .read(section);
}

void FieldReader::read_choice(const char* key, Choice& choice, const FieldInfo& info) {
  const Json* name = find(key);
  if (!name) return report_missing(key, info);
  const std::vector<std::string_view> views = choice.names();
  const std::vector<std::string> names(views.begin(), views.end());
  const auto chosen = name->is_string()
                          ? std::ranges::find(names, name->get_ref<const std::string&>())
                          : names.end();
  if (chosen == names.end())
    return report(key, fmt::format("expected one of {}; found {}{}", fmt::join(names, ", "),
                                   describe(*name), value_hint(*name, names)));
  choice.choose(static_cast<size_t>(chosen - names.begin()));
  chosen_ = {key, *chosen};
  read_each(Fields::of(choice));
  chosen_ = {};
  Alternatives alternatives{names, {}, choice.chosen()};
  each_alternative(
      choice, [&](Choice& other) { alternatives.keys.push_back(key_paths(Fields::of(other))); });
  pass_over_others(key, alternatives);
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

void FieldReader::convert(const char* key, const Json& value, const EnumMember& member) {
  const std::vector<std::string> names(member.names.begin(), member.names.end());
  const auto found = value.is_string()
                         ? std::ranges::find(names, value.get_ref<const std::string&>())
                         : names.end();
  if (found != names.end())
    *member.value = static_cast<uint8_t>(found - names.begin());
  else
    report(key, fmt::format("expected one of {}; found {}{}", fmt::join(names, ", "),
                            describe(value), value_hint(value, names)));
}

void FieldReader::convert(const char* key, const Json& value, StructList& member,
                          const FieldInfo& info) {
  if (member.takes_texts() && is_texts(value)) {
    std::vector<std::string> texts;
    convert(key, value, texts, info);
    member.clear();
    if (!texts.empty()) member.append_texts(std::move(texts));
    return;
  }
  if (!value.is_array() || !every(value, &Json::is_object))
    return report(
        key, fmt::format("expected {}a list of objects {{...}}, found {}",
                         member.takes_texts() ? "a list of strings or " : "", describe(value)));
  member.clear();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string path = join_key_path(join_key_path(path_, key), std::to_string(i));
    member.append();
    const Fields fields = member.fields_of(i);
    const std::vector<std::string> known = key_paths(fields, path);
    FieldReader(document_, value[i], path, {known, names_.usual}, found_).read(fields);
  }
}

bool FieldReader::in_range(const char* key, double value, const Json& shown,
                           const FieldInfo& info) {
  const bool inside = (!info.minimum || value >= *info.minimum) &&
                      (!info.maximum || value <= *info.maximum) &&
                      (!info.exclusive_minimum || value > *info.exclusive_minimum) &&
                      (!info.exclusive_maximum || value < *info.exclusive_maximum);
  if (!inside) report(key, fmt::format("must be {}, found {}", range_of(info), json_text(shown)));
  return inside;
}

void FieldReader::report(std::string_view key, const std::string& what) {
  const std::string path = join_key_path(path_, key);
  bad_keys_.emplace(key);
  found_.problems.push_back(fmt::format("{}: {}: {}", document_.source_of(path), path, what));
  throw_many_problems(found_.problems);
}

void FieldReader::report_unknown_keys() {
  const std::vector<std::string> keys = keys_of_section(names_.known, path_);
  for (const auto& item : node_.items())
    if (std::ranges::find(keys, item.key()) == keys.end())
      report(item.key(), "unknown key; " + suggestion(item.key()));
}

// Suggests a usual spelling from elsewhere, the nearest key in this section, the same key in
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
  const Condition& condition = info.condition();
  const Chosen by =
      condition.key.empty() ? chosen_ : Chosen{condition.key, condition.member.name()};
  if (!condition.holds() || bad_keys_.contains(by.key)) return;
  const std::string path = join_key_path(path_, key);
  const std::string need =
      by.key.empty() ? "" : fmt::format(" by {} = {}", join_key_path(path_, by.key), by.name);
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
      report_meaningless(item.key(), choice, fmt::format("{}", fmt::join(owners, " or ")),
                         alternatives.names[alternatives.chosen]);
  }
}

void FieldReader::report_meaningless(std::string_view key, std::string_view other_key,
                                     const std::string& accepted, std::string_view actual) {
  if (bad_keys_.contains(other_key)) return;
  const std::string path = join_key_path(path_, key);
  const std::string other = join_key_path(path_, other_key);
  report(key, fmt::format("requires {} = {}, but {} is {} ({}); remove the key, or unset an "
                          "included file's value with --set {}=null",
                          other, accepted, other, actual, document_.source_of(other), path));
}

}  // namespace

std::string Condition::accepted_names() const {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < member.names.size(); ++i)
    if ((accepted >> i & 1) != 0) names.push_back(member.names[i]);
  return fmt::format("{}", fmt::join(names, " or "));
}

std::optional<std::string> key_meant_by(std::string_view word,
                                        std::span<const UsualSpelling> usual) {
  const std::string path = plain_spelling(word), key = path.substr(path.rfind('.') + 1);
  for (const std::string& written : {path, key})
    for (const UsualSpelling& entry : usual)
      if (entry.written == written) return std::string(entry.meant);
  return std::nullopt;
}

std::vector<std::string> key_paths(const Fields& fields, const std::string& path) {
  std::vector<std::string> paths;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& one : more)
      if (std::ranges::find(paths, one) == paths.end()) paths.push_back(one);
  };
  for (const Field& field : fields) {
    paths.push_back(join_key_path(path, field.key));
    if (const auto* section = std::get_if<std::shared_ptr<Fields>>(&field.member))
      add(key_paths(**section, paths.back()));
    else if (Choice* const* choice = std::get_if<Choice*>(&field.member))
      each_alternative(**choice, [&](Choice& other) { add(key_paths(Fields::of(other), path)); });
  }
  return paths;
}

void use_present_names(JsonDocument& document, const Fields& fields, const std::string& path) {
  for (const Field& field : fields) {
    const std::string here = join_key_path(path, field.key);
    if (!field.info.former.empty()) document.rename(join_key_path(path, field.info.former), here);
    if (const auto* section = std::get_if<std::shared_ptr<Fields>>(&field.member))
      use_present_names(document, **section, here);
    else if (Choice* const* choice = std::get_if<Choice*>(&field.member))
      each_alternative(
          **choice, [&](Choice& other) { use_present_names(document, Fields::of(other), path); });
    else if (const auto* list = std::get_if<std::shared_ptr<StructList>>(&field.member))
      for (size_t i = 0; i < document.length_of(here); ++i)
        use_present_names(document, (*list)->default_fields(),
                          join_key_path(here, std::to_string(i)));
  }
}

void read_fields(const JsonDocument& document, const Fields& fields, Problems& problems,
                 const UsualSpellings& usual, LeftOut* left_out) {
  const std::vector<std::string> known = key_paths(fields);
  FieldReader(document, document.root(), "", {known, usual}, {problems, left_out}).read(fields);
}

}  // namespace mpt
