#include "core/text/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpt {
namespace {
constexpr size_t kMaxLength = 256;  // compared texts; the cost is quadratic
}

int64_t edit_distance(std::string_view a, std::string_view b) {
  // rows[i][j]: distance between the first i letters of a and the first j of b; only three rows are
  // kept.
  std::vector<int64_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known) {
  if (name.size() > kMaxLength) return std::nullopt;
  std::optional<std::string> best;
  int64_t best_distance = 0;
  for (const std::string& candidate : known) {
    const int64_t distance = edit_distance(name, candidate);
    const auto longer = static_cast<int64_t>(std::max(name.size(), candidate.size()));
    if (3 * distance > std::max<int64_t>(longer, 3)) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       int64_t count) {
  const auto order = [name = name.substr(0, kMaxLength)](const std::string& candidate) {
    const bool part = candidate.find(name) != std::string::npos;
    return std::pair(part ? 0 : 1, edit_distance(name, candidate));
  };
  std::ranges::stable_sort(known, {}, order);
  known.resize(std::min(known.size(), static_cast<size_t>(count)));
  return known;
}

std::string plain_spelling(std::string_view name) {
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return plain;
}

}  // namespace mpt
