// Declares the keys of a config struct once, as a list of fields that refer to its members.
//
//   struct BatchConfig {
//     int64_t seq_len = 1024;
//     void fields(Fields& f);
//   };
//   void BatchConfig::fields(Fields& f) {
//     f.optional("seq_len", seq_len, {.minimum = 1, .doc = "tokens in one sequence"});
//   }
//
// The reader, the writer, the schema and the list of known keys (config_reader.h, config_writer.h)
// walk that list. It has required() and optional() keys (the member's value is the default), a
// section() for a nested struct, and a choice() of structs: the key's value names one of them, and
// its keys then belong to the same section. Member lists the member types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/enum_names.h"
#include "core/json/config_struct.h"
#include "core/type_list.h"

namespace mpt {

template <class S>
concept HasFields = requires(S& s, Fields& fields) {
  s.fields(fields);
};

// --- members -------------------------------------------------------------------------------------

// An enum with EnumNames.
struct EnumMember {
  uint8_t* value = nullptr;
  std::span<const std::string_view> names{};

  [[nodiscard]] std::string_view name() const { return names[*value]; }
};
template <NamedEnum E>
EnumMember enum_member(E& member) {
  static_assert(std::is_same_v<std::underlying_type_t<E>, uint8_t>);
  return {reinterpret_cast<uint8_t*>(&member), EnumNames<E>::kNames};
}

// A std::vector of structs.
class StructList {
 public:
  virtual ~StructList() = default;
  [[nodiscard]] virtual size_t size() const = 0;
  virtual void clear() = 0;
  virtual void append() = 0;
  // References stay valid until the list changes.
  [[nodiscard]] virtual Fields fields_of(size_t index) = 0;
  // Fields of a default-constructed struct outside any list.
  [[nodiscard]] virtual Fields default_fields() = 0;

  // Whether a list of texts may replace the list of structs: see OfTexts.
  [[nodiscard]] virtual bool takes_texts() const = 0;
  virtual void append_texts(std::vector<std::string> texts) = 0;
  [[nodiscard]] virtual const std::vector<std::string>* texts_of(size_t index) const = 0;
};

// One of several structs, each with a kName.
class Choice {
 public:
  virtual ~Choice() = default;
  [[nodiscard]] virtual std::vector<std::string_view> names() const = 0;
  [[nodiscard]] virtual size_t chosen() const = 0;
  // Chooses the struct at `index` of names(), with its defaults.
  virtual void choose(size_t index) = 0;
  virtual void fields(Fields& fields) = 0;  // the chosen struct's
  [[nodiscard]] virtual std::unique_ptr<Choice> copy() const = 0;
};

// Calls f(choice) for every alternative, with its defaults.
template <class F>
void each_alternative(const Choice& choice, const F& f) {
  const std::unique_ptr<Choice> other = choice.copy();
  for (size_t i = 0; i < choice.names().size(); ++i) {
    other->choose(i);
    f(*other);
  }
}

template <class... A>
struct ChoiceOf : Choice {
  std::variant<A...> value{};

  ChoiceOf() = default;
  template <class C>
  requires(std::same_as<C, A> || ...) ChoiceOf(C chosen) : value(std::move(chosen)) {}
  bool operator==(const ChoiceOf& other) const { return value == other.value; }

  [[nodiscard]] std::vector<std::string_view> names() const override { return {A::kName...}; }
  [[nodiscard]] size_t chosen() const override { return value.index(); }
  void choose(size_t index) override {
    TypeList<A...>::with(index, [&]<class S>(std::type_identity<S>) { value = S{}; });
  }
  void fields(Fields& fields) override {
    std::visit([&](auto& keys) { keys.fields(fields); }, value);
  }
  [[nodiscard]] std::unique_ptr<Choice> copy() const override {
    return std::make_unique<ChoiceOf>(*this);
  }
};

using Member =
    std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*,
                 NamedNumbers*, NamedTexts*, std::optional<int64_t>*, std::optional<double>*,
                 std::optional<std::string>*, EnumMember, std::shared_ptr<StructList>,
                 std::shared_ptr<Fields>, Choice*>;

// --- fields --------------------------------------------------------------------------------------

// Restricts a field to certain values of an enum declared before it in the same struct. For other
// values the key must be absent, as it would be ignored.
struct Condition {
  std::string_view key{};  // "rule"; empty: always holds
  EnumMember member{};
  uint64_t accepted = 0;  // bit i: the value with index i

  // "m_plus_adam or adamw"
  [[nodiscard]] std::string accepted_names() const;
  [[nodiscard]] bool holds() const { return key.empty() || (accepted >> *member.value & 1) != 0; }
};

template <NamedEnum E>
Condition only_with(std::string_view key, E& member, std::initializer_list<E> accepted) {
  Condition condition{.key = key, .member = enum_member(member)};
  for (const E value : accepted) condition.accepted |= uint64_t{1} << static_cast<size_t>(value);
  return condition;
}

// Accepted values and documentation of a field; bounds apply to numbers.
struct FieldInfo {
  std::optional<double> minimum{};
  std::optional<double> exclusive_minimum{};
  std::optional<double> maximum{};
  std::optional<double> exclusive_maximum{};
  Condition only_with{};
  Condition and_with{};  // consulted if only_with holds
  std::string_view doc{};
  std::string_view former{};  // former name of the key, still accepted (use_present_names)

  // The one of the two that decides whether the key has a meaning.
  [[nodiscard]] const Condition& condition() const {
    return only_with.holds() && !and_with.key.empty() ? and_with : only_with;
  }
};

// Largest value of a key used in binary32 arithmetic: the value and its products stay finite.
inline constexpr double kMaxReal = 1e30;
// Smallest positive value: a normal binary32 number, so that "greater than 0" survives rounding.
inline constexpr double kMinPositiveReal = 1e-37;
// Largest factor below 1 that stays below 1 in binary32.
inline constexpr double kMaxBelowOne = 0.9999999;

struct Field {
  const char* key;
  bool is_required;
  Member member;
  FieldInfo info;
};

// The keys of a struct in order, with references to its members.
class Fields {
 public:
  template <HasFields S>
  static Fields of(S& s) {
    Fields list;
    s.fields(list);
    return list;
  }

  template <class T>
  void required(const char* key, T& member, const FieldInfo& info = {}) {
    list_.push_back({key, true, member_of(member), info});
  }
  template <class T>
  void optional(const char* key, T& member, const FieldInfo& info = {}) {
    list_.push_back({key, false, member_of(member), info});
  }
  template <HasFields S>
  void section(const char* key, S& member, std::string_view doc) {
    list_.push_back({key, false, std::make_shared<Fields>(of(member)), {.doc = doc}});
  }
  void choice(const char* key, Choice& member, const FieldInfo& info = {}) {
    list_.push_back({key, true, &member, info});
  }

  [[nodiscard]] auto begin() const { return list_.begin(); }
  [[nodiscard]] auto end() const { return list_.end(); }

 private:
  template <class T>
  static Member member_of(T& member) {
    return &member;
  }
  template <NamedEnum E>
  static Member member_of(E& member) {
    return enum_member(member);
  }
  template <HasFields S>
  static Member member_of(std::vector<S>& member);

  std::vector<Field> list_;
};

namespace fields_detail {

template <HasFields S>
class ListOf final : public StructList {
 public:
  explicit ListOf(std::vector<S>& list) : list_(list) {}
  [[nodiscard]] size_t size() const override { return list_.size(); }
  void clear() override { list_.clear(); }
  void append() override { list_.emplace_back(); }
  [[nodiscard]] Fields fields_of(size_t index) override { return Fields::of(list_[index]); }
  [[nodiscard]] Fields default_fields() override { return Fields::of(defaults_); }

  [[nodiscard]] bool takes_texts() const override { return OfTexts<S>; }
  void append_texts([[maybe_unused]] std::vector<std::string> texts) override {
    if constexpr (OfTexts<S>) list_.push_back(S::of_texts(std::move(texts)));
  }
  [[nodiscard]] const std::vector<std::string>* texts_of([[maybe_unused]] size_t i) const override {
    if constexpr (OfTexts<S>)
      return list_[i].as_texts();
    else
      return nullptr;
  }

 private:
  std::vector<S>& list_;
  S defaults_{};
};

}  // namespace fields_detail

template <HasFields S>
Member Fields::member_of(std::vector<S>& member) {
  return std::make_shared<fields_detail::ListOf<S>>(member);
}

}  // namespace mpt
