// The text of an open document, with positions as the protocol counts them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/source.h"
#include "tools/report.h"

namespace attn::tools::lsp {

// What `character` counts in a position: code units of this encoding.
enum class Encoding : std::uint8_t { utf8, utf16, utf32 };

// A place in a text; both numbers are from 0.
struct Position {
  std::int64_t line = 0;
  std::int64_t character = 0;
  bool operator==(const Position&) const = default;
};

struct Range {
  Position begin;
  Position end;
  bool operator==(const Range&) const = default;
};

class Text {
 public:
  Text(std::string text, Encoding encoding);

  const std::string& bytes() const { return bytes_; }
  Encoding encoding() const { return encoding_; }

  // Positions outside the text mean the nearest one inside; one within a code point means its
  // beginning.
  std::uint32_t offset(Position position) const;
  support::Span span(const Range& range) const;  // never reversed
  Position position(std::uint32_t offset) const;
  Range range(support::Span span) const;

  void replace(const Range& range, std::string_view text);

 private:
  // A place that is not within a code point, and the code units before it in its line.
  struct Mark {
    std::uint32_t offset = 0;
    std::int64_t character = 0;
  };

  std::string_view line(std::size_t number) const;  // with its line end
  void find_lines();
  void put_marks();

  std::string bytes_;
  Encoding encoding_;
  std::vector<std::uint32_t> line_starts_;
  // The beginning of each line, and more places in long lines, so that no position is far from one.
  std::vector<Mark> marks_;
};

// JSON as in the protocol. Reading throws Json::exception if something is missing or of another
// type.
Json to_json(const Position& position);
Json to_json(const Range& range);
Position position_of(const Json& json);
Range range_of(const Json& json);

}  // namespace attn::tools::lsp
