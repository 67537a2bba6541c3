#include "tools/lsp/text.h"

#include <gtest/gtest.h>

namespace attn::tools::lsp {
namespace {

// a, a character of 2 bytes, one of 3, and one of 4, which is two units of UTF-16.
constexpr const char* kLine = "a\u00e9\u2265\U0001F600b";

TEST(Text, CountsCharactersInTheEncodingOfTheClient) {
  const std::string text = std::string("x\n") + kLine + "\n";
  const std::uint32_t b = 2 + 1 + 2 + 3 + 4;
  EXPECT_EQ(Text(text, Encoding::utf8).position(b), (Position{1, 10}));
  EXPECT_EQ(Text(text, Encoding::utf16).position(b), (Position{1, 5}));
  EXPECT_EQ(Text(text, Encoding::utf32).position(b), (Position{1, 4}));
}

TEST(Text, PositionsAndOffsetsAreInverse) {
  for (const Encoding encoding : {Encoding::utf8, Encoding::utf16, Encoding::utf32}) {
    const Text text(std::string(kLine) + "\r\n" + kLine + "\r" + kLine, encoding);
    for (std::uint32_t at = 0; at <= text.bytes().size(); ++at) {
      const bool is_inside =
          at < text.bytes().size() && (static_cast<unsigned char>(text.bytes()[at]) & 0xC0) == 0x80;
      const bool is_line_end = at > 0 && text.bytes()[at] == '\n' && text.bytes()[at - 1] == '\r';
      if (is_inside || is_line_end) continue;
      EXPECT_EQ(text.offset(text.position(at)), at);
    }
  }
}

// Counted from the beginning of the line.
std::int64_t counted(std::string_view line, Encoding encoding) {
  std::int64_t units = 0;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    const bool begins = (byte & 0xC0) != 0x80;
    if (encoding == Encoding::utf8) ++units;
    if (encoding != Encoding::utf8 && begins) units += 1;
    if (encoding == Encoding::utf16 && byte >= 0xF0) ++units;
  }
  return units;
}

TEST(Text, LongLines) {
  std::string line;
  while (line.size() < 2000) line += std::string(line.size() % 7, 'x') + kLine;
  for (const Encoding encoding : {Encoding::utf8, Encoding::utf16, Encoding::utf32}) {
    for (const char* end : {"\n", "\r\n", "\r"}) {
      const Text text("short" + std::string(end) + line + end + end + line, encoding);
      const auto second = static_cast<std::uint32_t>(5 + std::string_view(end).size());
      for (std::uint32_t at = 0; at <= line.size(); ++at) {
        if (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) continue;
        const Position position{1, counted(std::string_view(line).substr(0, at), encoding)};
        EXPECT_EQ(text.position(second + at), position) << at;
        EXPECT_EQ(text.offset(position), second + at) << at;
        EXPECT_EQ(text.position(text.offset({3, position.character})).character,
                  position.character);
      }
      EXPECT_EQ(text.offset({1, 1'000'000}), second + line.size());
      EXPECT_EQ(text.offset({2, 7}), second + line.size() + std::string_view(end).size());
    }
  }
}

TEST(Text, APositionWithinACharacterIsItsBeginning) {
  const Text text("\U0001F600", Encoding::utf16);
  EXPECT_EQ(text.offset({0, 1}), 0U);
  EXPECT_EQ(text.offset({0, 2}), 4U);
}

TEST(Text, PositionsOutsideMeanTheNearestInside) {
  const Text text("ab\r\ncd", Encoding::utf16);
  EXPECT_EQ(text.offset({0, 99}), 2U);
  EXPECT_EQ(text.offset({99, 0}), 6U);
  EXPECT_EQ(text.offset({-1, 5}), 0U);
  EXPECT_EQ(text.offset({1, -5}), 4U);
  EXPECT_EQ(text.position(99), (Position{1, 2}));
  EXPECT_EQ(text.span({{1, 1}, {0, 1}}), (support::Span{1, 5}));  // reversed
}

TEST(Text, EditsInTurn) {
  Text text("mask x;\n", Encoding::utf16);
  text.replace({{0, 5}, {0, 6}}, "\u2265\ny");
  EXPECT_EQ(text.bytes(), "mask \u2265\ny;\n");
  text.replace({{1, 0}, {1, 1}}, "z");
  text.replace({{9, 9}, {9, 9}}, "!");
  text.replace({{0, 0}, {0, 5}}, "");
  EXPECT_EQ(text.bytes(), "\u2265\nz;\n!");
}

TEST(Text, ABrokenByteIsOneUnit) {
  EXPECT_EQ(Text("\xFFx", Encoding::utf16).position(1), (Position{0, 1}));
}

}  // namespace
}  // namespace attn::tools::lsp
