// JSON → config struct, by the struct's field list (config_fields.h).
//
// Reports every problem, not just the first, as "file:line: key.path: what is wrong, what would be
// accepted": unknown keys (with the nearest valid one), wrong types, values out of range, unknown
// enum names, missing required keys, and keys made meaningless by another key's value. `null`
// counts as not given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/json/config_fields.h"
#include "core/json/config_lists.h"
#include "core/json/json_document.h"

namespace mpt {

using Problems = std::vector<std::string>;
// "optimizer.eps (configs/base/adamw.json:4)": keys of an included base file that became
// meaningless because the including file chose another alternative (FieldReader::choice).
using LeftOut = std::vector<std::string>;

// Throws one Error that lists all problems, if there are any.
void throw_problems(const Problems& problems);
// Where problems are added: nobody reads more than some, and files may have very many.
void throw_many_problems(const Problems& problems);

// A key or value as users of other programs write it, and its meaning here.
struct UsualSpelling {
  std::string_view written, meant;
};
struct UsualSpellings {
  std::span<const UsualSpelling> keys{};  // a key or a key path -> a key path
  std::span<const UsualSpelling>
      values{};  // of enums; entries that the enum at hand lacks are skipped
};

// The key path meant by another program's word, such as "lr" or "batch.size".
std::optional<std::string> key_meant_by(std::string_view word,
                                        std::span<const UsualSpelling> usual);

// Collects the key paths of a struct: "optimizer", "optimizer.rule", ...
class KeyCollector {
 public:
  template <HasFields S>
  static std::vector<std::string> of(S& fields, const std::string& path = "") {
    KeyCollector collector(path);
    fields.fields(collector);
    return collector.paths_;
  }

  template <class T>
  void required(const char* key, T&, const FieldInfo& = {}) {
    paths_.push_back(join_key_path(path_, key));
  }
  template <class T>
  void optional(const char* key, T&, const FieldInfo& = {}) {
    paths_.push_back(join_key_path(path_, key));
  }
  template <HasFields S>
  void section(const char* key, S& member, std::string_view) {
    const std::string path = join_key_path(path_, key);
    paths_.push_back(path);
    for (std::string& inner : of(member, path)) paths_.push_back(std::move(inner));
  }
  // Collects the keys of all alternatives, each once.
  template <class... A>
  void choice(const char* key, std::variant<A...>&, const FieldInfo& = {}) {
    paths_.push_back(join_key_path(path_, key));
    (collect(of_alternative<A>(path_)), ...);
  }
  template <class A>
  static std::vector<std::string> of_alternative(const std::string& path) {
    A alternative{};
    return of(alternative, path);
  }

 private:
  void collect(const std::vector<std::string>& paths) {
    for (const std::string& path : paths)
      if (std::find(paths_.begin(), paths_.end(), path) == paths_.end()) paths_.push_back(path);
  }
  explicit KeyCollector(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::vector<std::string> paths_;
};

// Renames keys written under former names (FieldInfo::former). Must run before anything reads the
// document.
class FormerNames {
 public:
  template <HasFields S>
  static void use_present_names(JsonDocument& document, S& fields, const std::string& path = "") {
    FormerNames names(document, path);
    fields.fields(names);
  }

  template <class T>
  void required(const char* key, T&, const FieldInfo& info = {}) {
    if (!info.former.empty())
      document_.rename(join_key_path(path_, info.former), join_key_path(path_, key));
  }
  template <HasFields S>
  void required(const char* key, std::vector<S>&, const FieldInfo& = {}) {
    const std::string list = join_key_path(path_, key);
    const size_t length = document_.length_of(list);
    for (size_t i = 0; i < length; ++i) {
      S item{};
      use_present_names(document_, item, join_key_path(list, std::to_string(i)));
    }
  }
  template <class T>
  void optional(const char* key, T& member, const FieldInfo& info = {}) {
    required(key, member, info);
  }
  template <HasFields S>
  void section(const char* key, S& member, std::string_view) {
    use_present_names(document_, member, join_key_path(path_, key));
  }
  template <class... A>
  void choice(const char*, std::variant<A...>&, const FieldInfo& = {}) {
    (use_names_of<A>(), ...);
  }

 private:
  FormerNames(JsonDocument& document, std::string path)
      : document_(document), path_(std::move(path)) {}
  template <class A>
  void use_names_of() {
    A alternative{};
    alternative.fields(*this);
  }

  JsonDocument& document_;
  std::string path_;
};
template <HasFields S>
void use_present_names(JsonDocument& document, S& fields) {
  FormerNames::use_present_names(document, fields);
}

class FieldReader {
 public:
  template <HasFields S>
  static void read(const JsonDocument& document, S& result, Problems& problems,
                   const UsualSpellings& usual = {}, LeftOut* left_out = nullptr) {
    const std::vector<std::string> known = KeyCollector::of(result);
    FieldReader reader(document, document.root(), "", {known, usual}, {problems, left_out});
    reader.report_unknown_keys();
    result.fields(reader);
  }

  template <class T>
  void required(const char* key, T& member, const FieldInfo& info = {}) {
    if (!read_field(key, member, info)) report_missing(key, info);
  }
  template <class T>
  void optional(const char* key, T& member, const FieldInfo& info = {}) {
    read_field(key, member, info);
  }
  template <HasFields S>
  void section(const char* key, S& member, std::string_view) {
    static const Json kNothing = Json::object();
    const Json* value = find(key);
    if (value && !value->is_object()) {
      report(key, fmt::format("expected a section {{...}}, found {}", describe(*value)));
      return;
    }
    FieldReader inner(document_, value ? *value : kNothing, join_key_path(path_, key), names_,
                      found_);
    inner.report_unknown_keys();
    member.fields(inner);
  }
  // Keys of alternatives that were not chosen: dropped (and noted in left_out) if the choice was
  // made in a file or setting above the one that wrote them, otherwise an error, because they would
  // be ignored.
  template <class... A>
  void choice(const char* key, std::variant<A...>& member, const FieldInfo& info = {}) {
    const Json* name = find(key);
    if (!name) return report_missing(key, info);
    const std::vector<std::string> names{std::string(A::kName)...};
    const bool known = name->is_string() && ((*name == A::kName && (member = A{}, true)) || ...);
    if (!known)
      return report(key, fmt::format("expected one of {}; found {}{}", fmt::join(names, ", "),
                                     describe(*name), value_hint(*name, names)));
    chosen_ = {.key = key, .actual = names[member.index()]};
    std::visit([&](auto& chosen) { chosen.fields(*this); }, member);
    chosen_ = Condition{.key = {}, .actual = {}};
    const std::vector<std::vector<std::string>> keys{KeyCollector::of_alternative<A>("")...};
    pass_over_others(key, {names, keys, member.index()});
  }

 private:
  struct Alternatives {
    const std::vector<std::string>& names;
    const std::vector<std::vector<std::string>>& keys;  // of each
    size_t chosen;
  };
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

  // Returns whether the key was present; a bad value has been reported.
  template <class T>
  bool read_field(const char* key, T& member, const FieldInfo& info) {
    const Json* value = find(key);
    if (!value) return false;
    if (info.only_with.holds)
      convert(key, *value, member, info);
    else
      report_meaningless(key, info.only_with);
    return true;
  }

  void convert(const char* key, const Json& value, bool& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, int64_t& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, uint64_t& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, double& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, std::string& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, std::vector<std::string>& member,
               const FieldInfo& info);
  void convert(const char* key, const Json& value, NamedNumbers& member, const FieldInfo& info);
  void convert(const char* key, const Json& value, NamedTexts& member, const FieldInfo& info);
  template <HasFields S>
  void convert(const char* key, const Json& value, std::vector<S>& member, const FieldInfo& info) {
    if constexpr (OfTexts<S>) {
      if (is_texts(value)) {
        std::vector<std::string> texts;
        convert(key, value, texts, info);
        member.clear();
        if (!texts.empty()) member.push_back(S::of_texts(std::move(texts)));
        return;
      }
    }
    if (!value.is_array() || !every(value, &Json::is_object))
      return report(key, fmt::format("expected {}a list of objects {{...}}, found {}",
                                     OfTexts<S> ? "a list of strings or " : "", describe(value)));
    member.clear();
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string path = join_key_path(join_key_path(path_, key), std::to_string(i));
      S& item = member.emplace_back();
      const std::vector<std::string> known = KeyCollector::of(item, path);
      FieldReader inner(document_, value[i], path, {known, names_.usual}, found_);
      inner.report_unknown_keys();
      item.fields(inner);
    }
  }
  // A string, or a list that holds nothing else.
  static bool is_texts(const Json& value) {
    return value.is_string() || (value.is_array() && every(value, &Json::is_string));
  }
  static bool every(const Json& list, bool (Json::*is)() const noexcept) {
    return std::all_of(list.begin(), list.end(), [&](const Json& item) { return (item.*is)(); });
  }
  template <NamedEnum E>
  void convert(const char* key, const Json& value, E& member, const FieldInfo&) {
    const auto known =
        value.is_string() ? enum_from_name<E>(value.get_ref<const std::string&>()) : std::nullopt;
    if (known)
      member = *known;
    else
      report(key, fmt::format("expected one of {}; found {}{}", all_names<E>(), describe(value),
                              value_hint(value, {EnumNames<E>::kNames.begin(),
                                                 EnumNames<E>::kNames.end()})));
  }
  template <class T>
  void convert(const char* key, const Json& value, std::optional<T>& member,
               const FieldInfo& info) {
    T inner{};
    convert(key, value, inner, info);
    member = inner;
  }

  // The value of a key of this section if it is present and not null, else null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  bool in_range(const char* key, double value, const Json& shown, const FieldInfo& info);
  void report(std::string_view key, const std::string& what);
  void report_unknown_keys();
  [[nodiscard]] std::string suggestion(const std::string& key) const;
  // "; did you mean ...?", or nothing.
  [[nodiscard]] std::string value_hint(const Json& value,
                                       const std::vector<std::string>& names) const;
  void report_missing(const char* key, const FieldInfo& info);
  void report_meaningless(std::string_view key, const Condition& condition);
  void pass_over_others(const char* choice, const Alternatives& alternatives);

  const JsonDocument& document_;
  const Json& node_;
  std::string path_;
  Names names_;
  Found found_;
  Condition chosen_{.key = {}, .actual = {}};  // the choice whose keys are being read
  std::set<std::string, std::less<>> bad_keys_;
};

}  // namespace mpt
