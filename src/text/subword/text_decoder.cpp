#include "text/subword/text_decoder.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/text/utf8.h"
#include "text/byte_level.h"
#include "text/subword/vocabulary.h"

namespace mpt {
namespace {

using Pieces = std::vector<std::string>;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the longest truncated character at the start of `rest`, where no valid one begins; at
// least 1.
size_t broken_bytes(std::string_view rest) {
  size_t length = 1;
  for (; length < 3 && length < rest.size() && is_continuation(rest[length]); ++length) {
    // Checks whether padding with the smallest or the largest byte gives a character.
    const std::string begun(rest.substr(0, length + 1));
    const auto completes = [&](char last) {
      for (std::string text = begun; text.size() < 5; text += last)
        if (valid_utf8_prefix(text) == text.size()) return true;
      return false;
    };
    if (!completes('\x80') && !completes('\xBF')) break;
  }
  return length;
}

std::string valid_text(std::string_view bytes) {
  std::string text;
  while (true) {
    const size_t valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return text;
    text += kReplacement;
    bytes.remove_prefix(broken_bytes(bytes));
  }
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

struct Decode {
  Pieces pieces;
  size_t most;  // limit on the bytes that the pieces may become

  Pieces operator()(const DecodeByteLevel&) const {
    std::string bytes;
    for (const std::string& piece : pieces) bytes += bytes_of_byte_level(piece).value_or(piece);
    return {valid_text(bytes)};
  }

  // Consecutive bytes are text if all of them together are.
  Pieces operator()(const DecodeByteFallback&) const {
    Pieces result;
    std::string bytes;
    const auto end_bytes = [&] {
      if (valid_utf8_prefix(bytes) == bytes.size()) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (const std::string& piece : pieces)
      if (const int byte = byte_of_piece(piece); byte >= 0) {
        bytes += char(byte);
      } else {
        end_bytes();
        result.push_back(piece);
      }
    end_bytes();
    return result;
  }

  Pieces operator()(const Fuse&) const { return {joined(pieces)}; }

  Pieces operator()(const StripEnds& strip) const {
    Pieces result;
    for (const std::string& whole : pieces) {
      std::string_view piece = whole;
      for (int64_t i = 0; i < strip.begin && piece.starts_with(strip.character); ++i)
        piece.remove_prefix(strip.character.size());
      for (int64_t i = 0; i < strip.end && piece.ends_with(strip.character); ++i)
        piece.remove_suffix(strip.character.size());
      result.emplace_back(piece);
    }
    return result;
  }

  Pieces operator()(const ReplaceMatches& replace) const {
    Pieces result;
    size_t left = most;
    for (const std::string& piece : pieces) {
      result.push_back(replaced(piece, replace, left));
      left -= std::min(left, result.back().size());
    }
    return result;
  }

  Pieces operator()(const DecodeMetaspace& space) const {
    Pieces result;
    for (const std::string& piece : pieces) {
      std::string text;
      const std::string_view by = result.empty() && space.prepended ? "" : " ";
      size_t copied = 0;
      for (size_t at; (at = piece.find(space.replacement, copied)) != std::string::npos;) {
        text.append(piece, copied, at - copied).append(by);
        copied = at + space.replacement.size();
      }
      result.push_back(text.append(piece, copied));
    }
    return result;
  }
};

}  // namespace

std::string TextDecoder::decode(std::vector<std::string> pieces) const {
  if (steps_.empty()) return fmt::format("{}", fmt::join(pieces, " "));
  const size_t most = most_bytes_of(joined(pieces).size());
  for (const Step& step : steps_) pieces = std::visit(Decode{std::move(pieces), most}, step);
  return joined(pieces);
}

}  // namespace mpt
