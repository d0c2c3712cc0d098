#include "watch/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <limits>

#include <fmt/format.h>

namespace mpt {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

void append_little_endian(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += char(value >> (8 * i));
}

// --- protocol buffers: the fields of event.proto and summary.proto that are written --------------

enum WireType : uint32_t { kVarint = 0, kEightBytes = 1, kLengthDelimited = 2, kFourBytes = 5 };

void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
  bytes += char(value);
}
void append_key(std::string& bytes, uint32_t field, WireType type) {
  append_varint(bytes, field << 3 | type);
}
void append_bytes(std::string& bytes, uint32_t field, std::string_view value) {
  append_key(bytes, field, kLengthDelimited);
  append_varint(bytes, value.size());
  bytes += value;
}

// Begins an Event, without its payload.
std::string event_at(int64_t step, double wall_time) {
  std::string event;
  append_key(event, 1, kEightBytes);
  append_little_endian(event, std::bit_cast<uint64_t>(wall_time), 8);
  if (step == 0) return event;  // the default is not written
  append_key(event, 2, kVarint);
  append_varint(event, uint64_t(step));
  return event;
}

std::string summary_value(const std::string& tag, double value) {
  std::string bytes;
  append_bytes(bytes, 1, tag);
  append_key(bytes, 2, kFourBytes);
  append_little_endian(bytes, std::bit_cast<uint32_t>(float(value)), 4);
  return bytes;
}

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string framed(const std::string& event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_little_endian(record, masked_checksum(record), 4);
  record += event;
  append_little_endian(record, masked_checksum(event), 4);
  return record;
}

// --- scalars of a record -------------------------------------------------------------------------

// A value that is not finite is null in metrics.jsonl.
bool is_scalar(const auto& value) { return value.is_number() || value.is_null(); }
double number(const auto& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.template get<double>();
}

// Each scalar copies the group's name: untrusted lines could fill the memory with long ones.
void add_numbers(Scalars& scalars, const std::string& group, const auto& object) {
  constexpr size_t kMostGroupBytes = 200;
  if (group.size() > kMostGroupBytes) return;
  for (const auto& [key, value] : object.items())
    if (is_scalar(value)) scalars.emplace_back(group + key, number(value));
}

int64_t sum(const auto& counts) {
  int64_t total = 0;
  for (const auto& count : counts) total += count.template get<int64_t>();
  return total;
}

// Adds the fraction of updates that changed the stored weight, unless there were none.
void add_share(Scalars& scalars, const std::string& name, int64_t moved, int64_t asked) {
  if (asked > 0) scalars.emplace_back("updates_moved/" + name, double(moved) / double(asked));
}

void add_updates(Scalars& scalars, const auto& tensors) {
  int64_t all_moved = 0, all_asked = 0;
  for (const auto& [name, tensor] : tensors.items()) {
    const auto& outcomes = tensor.at("both");
    const int64_t moved = sum(outcomes.at("moved")), asked = moved + sum(outcomes.at("vanished"));
    add_share(scalars, name, moved, asked);
    all_moved += moved;
    all_asked += asked;
  }
  add_share(scalars, "all", all_moved, all_asked);
}

Scalars scalars_in(const auto& record) {
  constexpr std::string_view kOfValidation = "val_";
  Scalars scalars;
  for (const auto& [key, value] : record.items()) {
    if (is_scalar(value) && key.starts_with(kOfValidation))
      scalars.emplace_back("validation/" + key.substr(kOfValidation.size()), number(value));
    else if (is_scalar(value) && key != "step")
      scalars.emplace_back("train/" + key, number(value));
    else if (key == "validation")
      for (const auto& [set, figures] : value.items())
        add_numbers(scalars, "validation/" + set + "/", figures);
    else if (key == "update_survival")
      add_updates(scalars, value.at("tensors"));
  }
  return scalars;
}

// --- file names ----------------------------------------------------------------------------------

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Returns the number in the name of an event file; -1 for another file.
int64_t number_in(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t number = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
  return number;
}

// TensorBoard reads the files of a run in the order of their names.
std::string next_name(FileSystem& fs, const std::string& directory) {
  int64_t number = seconds_now();
  for (const std::string& name : fs.list_directory(directory))
    number = std::max(number, number_in(name) + 1);
  return fmt::format("{}{:010}.mpretrain", kPrefix, number);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ uint8_t(byte)) & 0xff];
  return ~crc;
}

std::string version_event(double wall_time) {
  std::string event = event_at(0, wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

std::string restart_event(int64_t step, double wall_time) {
  std::string event = event_at(step, wall_time);
  append_bytes(event, 7, "\x08\x01");  // a SessionLog with status START
  return framed(event);
}

std::string scalars_event(int64_t step, double wall_time, const Scalars& values) {
  std::string summary, event = event_at(step, wall_time);
  for (const auto& [tag, value] : values) append_bytes(summary, 1, summary_value(tag, value));
  append_bytes(event, 5, summary);
  return framed(event);
}

Scalars scalars_of(const nlohmann::ordered_json& record) { return scalars_in(record); }
Scalars scalars_of(const nlohmann::json& record) { return scalars_in(record); }

EventFile::EventFile(FileSystem& fs, const std::string& directory)
    : path_(in_directory(directory, next_name(fs, directory))), file_(fs.create(path_)) {
  fs.sync_directory(directory);
  file_->append(bytes_of(version_event(double(seconds_now()))));
}

void EventFile::scalars(int64_t step, double wall_time, const Scalars& values) {
  file_->append(bytes_of(scalars_event(step, wall_time, values)));
}

void EventFile::restart(int64_t step, double wall_time) {
  file_->append(bytes_of(restart_event(step, wall_time)));
}

}  // namespace mpt
