// Lines of a file longer than a single read, and the text after the last newline.
#include "core/io/lines.h"

#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace mpt {
namespace {

class TextInMemory : public ReadableFile {
 public:
  explicit TextInMemory(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] int64_t size() const override { return int64_t(text_.size()); }
  void read(int64_t offset, std::span<std::byte> target) const override {
    ASSERT_LE(size_t(offset) + target.size(), text_.size());
    std::memcpy(target.data(), text_.data() + offset, target.size());
  }

 private:
  std::string text_;
};

using Lines = std::vector<std::pair<std::string, LineEnd>>;

Lines lines_of(const std::string& text) {
  Lines lines;
  each_line(TextInMemory(text), "log",
            [&](std::string_view line, LineEnd end) { lines.emplace_back(line, end); });
  return lines;
}

TEST(Lines, AreWithoutTheirNewline) {
  EXPECT_EQ(lines_of(""), Lines());
  EXPECT_EQ(
      lines_of("\n\na b\r\n"),
      (Lines{{"", LineEnd::kNewline}, {"", LineEnd::kNewline}, {"a b\r", LineEnd::kNewline}}));
}

TEST(Lines, WhatFollowsTheLastNewlineIsToldApart) {
  EXPECT_EQ(lines_of("a\nb"), (Lines{{"a", LineEnd::kNewline}, {"b", LineEnd::kFile}}));
  EXPECT_EQ(lines_of("b"), (Lines{{"b", LineEnd::kFile}}));
}

TEST(Lines, MayEndAnywhereInWhatIsReadAtOnce) {
  constexpr size_t kPiece = size_t{1} << 20;
  for (const size_t length :
       {kPiece - 2, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece, 3 * kPiece + 5}) {
    const std::string longest(length, 'x');
    EXPECT_EQ(lines_of(longest + "\nshort\n" + longest), (Lines{{longest, LineEnd::kNewline},
                                                                {"short", LineEnd::kNewline},
                                                                {longest, LineEnd::kFile}}));
  }
}

TEST(Lines, ALineWithoutEndIsRefused) {
  EXPECT_ERROR(lines_of("a\n" + std::string(size_t(kLongestLine) + (size_t{1} << 20), 'x')),
               "log: line 2 is longer than 64 MiB");
}

}  // namespace
}  // namespace mpt
