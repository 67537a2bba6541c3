#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words.h"

namespace attn::tools {
namespace {

using support::Paint;
using support::Style;
using Cells = std::vector<Table::Cell>;

// One line. Widens `widths` if a cell needs more.
std::string line_of(const std::vector<Table::Column>& columns, const Cells& cells,
                    std::vector<std::size_t>& widths, Paint paint) {
  std::string line;
  std::size_t spaces = 0;  // before the next cell that is not empty
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string text = shown(cells[i].text);
    widths[i] = std::max(widths[i], text.size());
    const std::size_t padding = widths[i] - text.size();
    const bool right = columns[i].align == Align::right;
    spaces += (i == 0 ? 0 : 2) + (right ? padding : 0);
    if (!text.empty()) {
      line += std::string(spaces, ' ') + (cells[i].style ? paint(*cells[i].style, text) : text);
      spaces = 0;
    }
    if (!right) spaces += padding;
  }
  return line + "\n";
}

Cells titles_of(const std::vector<Table::Column>& columns) {
  Cells titles;
  for (const Table::Column& column : columns) titles.emplace_back(column.title, Style::heading);
  return titles;
}

}  // namespace

std::string Table::to_text(const std::string& indent, Paint paint) const {
  const Cells titles = titles_of(columns_);
  std::vector<std::size_t> widths(columns_.size(), 0);
  (void)line_of(columns_, titles, widths, paint);
  for (const Cells& row : rows_) (void)line_of(columns_, row, widths, paint);
  std::string text = indent + line_of(columns_, titles, widths, paint);
  for (const Cells& row : rows_) text += indent + line_of(columns_, row, widths, paint);
  return text;
}

GrowingTable::GrowingTable(std::vector<Table::Column> columns, std::vector<std::size_t> widths,
                           Paint paint)
    : columns_(std::move(columns)), widths_(std::move(widths)), paint_(paint) {
  widths_.resize(columns_.size());
}

std::string GrowingTable::titles() {
  return line_of(columns_, titles_of(columns_), widths_, paint_);
}

std::string GrowingTable::row(const Cells& cells) {
  return line_of(columns_, cells, widths_, paint_);
}

}  // namespace attn::tools
