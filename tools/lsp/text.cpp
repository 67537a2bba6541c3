#include "tools/lsp/text.h"

#include <algorithm>

#include "compiler/support/text.h"

namespace attn::tools::lsp {
namespace {

constexpr std::uint32_t kBetweenMarks = 256;  // bytes of a line, about

// Units of one code point, or of a byte that is not UTF-8.
std::int64_t units(std::size_t bytes, Encoding encoding) {
  if (encoding == Encoding::utf8) return static_cast<std::int64_t>(bytes);
  return encoding == Encoding::utf16 && bytes == 4 ? 2 : 1;  // a surrogate pair
}

std::string_view without_line_end(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

Text::Text(std::string text, Encoding encoding) : bytes_(std::move(text)), encoding_(encoding) {
  find_lines();
}

// A line ends with \n, \r\n or \r.
void Text::find_lines() {
  line_starts_ = {0};
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    const bool is_pair = bytes_[i] == '\r' && i + 1 < bytes_.size() && bytes_[i + 1] == '\n';
    if (bytes_[i] == '\n' || (bytes_[i] == '\r' && !is_pair)) {
      line_starts_.push_back(static_cast<std::uint32_t>(i + 1));
    }
  }
  put_marks();
}

void Text::put_marks() {
  marks_.clear();
  for (std::size_t number = 0; number < line_starts_.size(); ++number) {
    const std::uint32_t start = line_starts_[number];
    const std::string_view text = line(number);
    marks_.push_back({start, 0});
    std::int64_t character = 0;
    for (std::size_t at = 0; text.size() > kBetweenMarks && at < text.size();) {
      const auto offset = start + static_cast<std::uint32_t>(at);
      if (offset - marks_.back().offset >= kBetweenMarks) marks_.push_back({offset, character});
      const std::size_t bytes = support::code_point_bytes(text.substr(at));
      character += units(bytes, encoding_);
      at += bytes;
    }
  }
}

std::string_view Text::line(std::size_t number) const {
  const std::uint32_t begin = line_starts_[number];
  const std::size_t end =
      number + 1 < line_starts_.size() ? line_starts_[number + 1] : bytes_.size();
  return std::string_view(bytes_).substr(begin, end - begin);
}

std::uint32_t Text::offset(Position position) const {
  if (position.line < 0) return 0;
  if (position.line >= static_cast<std::int64_t>(line_starts_.size())) {
    return static_cast<std::uint32_t>(bytes_.size());
  }
  const auto number = static_cast<std::size_t>(position.line);
  const std::uint32_t start = line_starts_[number];
  const auto first = std::ranges::lower_bound(marks_, start, {}, &Mark::offset);
  const auto last =
      std::ranges::lower_bound(marks_, start + line(number).size(), {}, &Mark::offset);
  const auto next = std::ranges::upper_bound(std::next(first), std::max(std::next(first), last),
                                             position.character, {}, &Mark::character);
  const Mark mark = *std::prev(next);
  const std::string_view text = without_line_end(line(number));
  std::size_t at = std::min<std::size_t>(mark.offset - start, text.size());
  for (std::int64_t left = position.character - mark.character; at < text.size();) {
    const std::size_t bytes = support::code_point_bytes(text.substr(at));
    left -= units(bytes, encoding_);
    if (left < 0) break;
    at += bytes;
  }
  return start + static_cast<std::uint32_t>(at);
}

support::Span Text::span(const Range& range) const {
  const std::uint32_t begin = offset(range.begin), end = offset(range.end);
  return {std::min(begin, end), std::max(begin, end)};
}

Position Text::position(std::uint32_t offset) const {
  offset = std::min(offset, static_cast<std::uint32_t>(bytes_.size()));
  const auto next = std::ranges::upper_bound(line_starts_, offset);
  const auto number = static_cast<std::size_t>(next - line_starts_.begin()) - 1;
  const Mark mark = *std::prev(std::ranges::upper_bound(marks_, offset, {}, &Mark::offset));
  const auto text = std::string_view(bytes_).substr(mark.offset, offset - mark.offset);
  Position position{static_cast<std::int64_t>(number), mark.character};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = support::code_point_bytes(text.substr(at));
    position.character += units(bytes, encoding_);
    at += bytes;
  }
  return position;
}

Range Text::range(support::Span span) const { return {position(span.begin), position(span.end)}; }

void Text::replace(const Range& range, std::string_view text) {
  const support::Span at = span(range);
  bytes_.replace(at.begin, at.end - at.begin, text);
  find_lines();
}

Json to_json(const Position& position) {
  return {{"line", position.line}, {"character", position.character}};
}

Json to_json(const Range& range) {
  return {{"start", to_json(range.begin)}, {"end", to_json(range.end)}};
}

Position position_of(const Json& json) {
  return {json.at("line").get<std::int64_t>(), json.at("character").get<std::int64_t>()};
}

Range range_of(const Json& json) {
  return {position_of(json.at("start")), position_of(json.at("end"))};
}

}  // namespace attn::tools::lsp
