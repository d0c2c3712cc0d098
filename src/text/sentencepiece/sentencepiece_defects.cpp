#include "text/sentencepiece/sentencepiece_defects.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "text/sentencepiece/proto_message.h"
#include "text/subword/vocabulary.h"

namespace mpt {
namespace {

// Unit of a double array in Darts-clone's layout.
struct Unit {
  uint32_t bits;

  [[nodiscard]] uint32_t label() const { return bits & (1u << 31 | 0xFF); }  // above 255: a value
  [[nodiscard]] bool has_value() const { return (bits >> 8 & 1) != 0; }
  [[nodiscard]] uint32_t value() const { return bits & ~(1u << 31); }
  [[nodiscard]] size_t offset() const { return size_t{bits >> 10} << ((bits & 1u << 9) >> 6); }
};

// Walks a double array from its root, like a search for any text.
class DoubleArrayCheck {
 public:
  // Values must be below `values`.
  DoubleArrayCheck(std::string_view bytes, size_t values) : values_(values) {
    units_.resize(bytes.size() / sizeof(Unit));
    if (!units_.empty()) std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(Unit));
    nodes_.resize(units_.size());
  }

  // Whether every search stays in bounds, terminates, and finds no more values than the library has
  // room for.
  bool sound() {
    if (units_.empty() || !enter(0)) return false;
    while (!open_.empty()) {
      Open& top = open_.back();
      if (top.next_label > 0xFF) {
        if (!leave()) return false;
        continue;
      }
      const size_t child = children_of(top.unit) ^ top.next_label;
      const bool is_child = units_[child].label() == top.next_label++;
      if (is_child && !visit(child)) return false;
    }
    return true;
  }

 private:
  static constexpr int kMostValues = 32;  // on the path of one search
  static constexpr int kMostBytes = 256;  // read by one search

  enum class State : uint8_t { kNew, kOpen, kDone };
  struct Node {
    State state = State::kNew;
    uint8_t most_values = 0;  // on any path below
    uint16_t most_bytes = 0;  // on any path below
  };
  struct Open {
    size_t unit;
    uint32_t next_label;
  };

  // Children are at this position ^ label, the value at label 0.
  [[nodiscard]] size_t children_of(size_t unit) const { return unit ^ units_[unit].offset(); }

  bool visit(size_t child) {
    if (nodes_[child].state == State::kOpen) return false;  // a search could loop forever
    if (nodes_[child].state == State::kNew) return enter(child);
    return count(child);
  }

  bool enter(size_t unit) {
    const size_t children = children_of(unit);
    if ((children | 0xFF) >= units_.size()) return false;
    const bool has_value = unit != 0 && units_[unit].has_value();
    if (has_value && units_[children].value() >= values_) return false;
    nodes_[unit].state = State::kOpen;
    open_.push_back({unit, 0});
    return true;
  }

  bool leave() {
    const size_t unit = open_.back().unit;
    open_.pop_back();
    nodes_[unit].state = State::kDone;
    return open_.empty() || count(unit);
  }

  // Merges a finished child into the open node.
  bool count(size_t child) {
    const int values = nodes_[child].most_values + (units_[child].has_value() ? 1 : 0);
    const int bytes = nodes_[child].most_bytes + 1;
    Node& node = nodes_[open_.back().unit];
    node.most_values = static_cast<uint8_t>(std::max<int>(node.most_values, values));
    node.most_bytes = static_cast<uint16_t>(std::max<int>(node.most_bytes, bytes));
    return values <= kMostValues && bytes <= kMostBytes;
  }

  std::vector<Unit> units_;
  std::vector<Node> nodes_;
  std::vector<Open> open_;
  size_t values_;
};

// Layout: byte size of the double array (uint32), the array, then the zero-terminated texts that
// its values point to.
bool character_map_is_sound(std::string_view map) {
  uint32_t bytes = 0;
  if (map.empty()) return true;
  if (map.size() < sizeof bytes) return false;
  std::memcpy(&bytes, map.data(), sizeof bytes);
  map.remove_prefix(sizeof bytes);
  if (bytes >= map.size() || map.back() != '\0') return false;
  return DoubleArrayCheck(map.substr(0, bytes), map.size() - bytes).sound();
}

std::string defect_of_normalizer(std::string_view message) {
  ProtoMessage fields(message);
  while (const auto field = fields.next())
    if (field->number == 2 && !character_map_is_sound(field->bytes))
      return "the character map of its normalization is damaged";
  return fields.damaged() ? "its normalization is damaged" : "";
}

// Appends the text of a user-defined piece to `user_pieces`.
std::string defect_of_piece(std::string_view message, std::vector<std::string_view>& user_pieces) {
  constexpr uint64_t kUserDefined = 4;
  std::string_view text;
  uint64_t type = 0;
  ProtoMessage fields(message);
  while (const auto field = fields.next()) {
    if (field->number == 1) text = field->bytes;
    if (field->number == 3) type = field->value;
  }
  if (type == kUserDefined) user_pieces.push_back(text);
  if (text.size() > kMostPieceBytes)
    return fmt::format("one of its pieces has {} bytes; at most {} are accepted", text.size(),
                       kMostPieceBytes);
  return fields.damaged() ? "one of its pieces is damaged" : "";
}

// Maximum number of pieces that are prefixes of a single text.
size_t most_nested(std::vector<std::string_view> pieces) {
  std::ranges::sort(pieces);
  std::vector<std::string_view> open;  // each is a prefix of the next
  size_t most = 0;
  for (const std::string_view piece : pieces) {
    while (!open.empty() && !piece.starts_with(open.back())) open.pop_back();
    open.push_back(piece);
    most = std::max(most, open.size());
  }
  return most;
}

}  // namespace

std::string defect_of_model(std::string_view model) {
  constexpr size_t kMostNested = 64;
  std::vector<std::string_view> user_pieces;
  ProtoMessage fields(model);
  while (const auto field = fields.next()) {
    if (field->number == 1)
      if (std::string defect = defect_of_piece(field->bytes, user_pieces); !defect.empty())
        return defect;
    if (field->number == 3 || field->number == 5)
      if (std::string defect = defect_of_normalizer(field->bytes); !defect.empty()) return defect;
  }
  if (fields.damaged()) return "it is no valid protocol buffer";
  if (most_nested(user_pieces) > kMostNested)
    return "more than 64 of its user-defined pieces begin with one another";
  return "";
}

}  // namespace mpt
