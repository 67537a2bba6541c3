#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words.h"

namespace attn::tools {
namespace {

std::string cell(const std::string& text, Align align, std::size_t width) {
  return align == Align::left ? fmt::format("{:<{}}", text, width)
                              : fmt::format("{:>{}}", text, width);
}

}  // namespace

std::string Table::to_text(const std::string& indent) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(column.title);
  for (const auto& row : rows_) {
    auto& line = lines.emplace_back();
    for (const std::string& text : row) line.push_back(shown(text));
  }

  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row = indent;
    for (std::size_t i = 0; i < line.size(); ++i) {
      row += (i == 0 ? "" : "  ") + cell(line[i], columns_[i].align, widths[i]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace attn::tools
