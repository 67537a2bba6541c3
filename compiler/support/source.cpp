#include "compiler/support/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "compiler/support/text.h"
#include "runtime/base/regular_file.h"
#include "runtime/base/spec_form.h"

namespace attn::support {
namespace {

constexpr std::size_t kMostRead = kMaxSourceBytes + 1;  // enough for the parser to reject it

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, count);
    if (text.size() >= kMostRead) break;
  }
  if (std::ferror(stdin) == 0) return text;
  return {ErrorCode::io, fmt::format("cannot read standard input: {}", std::strerror(errno))};
}

Result<std::string> read_text(const std::string& path) {
  Result<std::string> text = read_regular_file(path, kMostRead);
  if (text.ok()) return text;
  Error error = text.error();
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) {
    error.notes.emplace_back("use `-` as the file name to read standard input");
  }
  return error;
}

}  // namespace

Source::Source(std::string name, std::string text)
    : name_(std::move(name)), text_(std::move(text)), line_starts_{0} {
  bool ascii = true;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    if (ascii && static_cast<unsigned char>(text_[i]) >= 0x80) {
      ascii_ends_.push_back(at);
      ascii = false;
    }
    if (text_[i] != '\n') continue;
    if (ascii) ascii_ends_.push_back(at);
    line_starts_.push_back(at + 1);
    ascii = true;
  }
  if (ascii) ascii_ends_.push_back(static_cast<std::uint32_t>(text_.size()));
}

Result<Source> Source::read(const std::string& path) {
  const bool standard_input = path == "-";
  ATTN_ASSIGN(std::string text, standard_input ? read_standard_input() : read_text(path));
  return Source(standard_input ? "<stdin>" : path, std::move(text));
}

Place Source::place(std::uint32_t offset) const {
  offset = std::min(offset, static_cast<std::uint32_t>(text_.size()));
  const auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const auto number = static_cast<std::uint32_t>(next - line_starts_.begin());
  const std::uint32_t start = line_starts_[number - 1];
  std::uint32_t at = std::min(offset, ascii_ends_[number - 1]);
  std::uint32_t column = at - start + 1;
  for (; at < offset; ++column) {
    at += static_cast<std::uint32_t>(code_point_bytes(text().substr(at)));
    if (at > offset) break;  // inside a code point
  }
  return {number, column};
}

std::string_view Source::line(std::uint32_t number) const {
  if (number == 0 || number > line_starts_.size()) return text().substr(text().size());
  const std::uint32_t start = line_starts_[number - 1];
  const std::size_t stop = number < line_starts_.size() ? line_starts_[number] - 1 : text_.size();
  std::string_view found = text().substr(start, stop - start);
  if (found.ends_with('\r')) found.remove_suffix(1);
  return found;
}

bool Source::is_json() const { return is_json_spec(text_) || name_.ends_with(".json"); }

}  // namespace attn::support
