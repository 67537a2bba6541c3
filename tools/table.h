// Formats text in columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/support/paint.h"

namespace attn::tools {

enum class Align : unsigned char { left, right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  // Any text: it is escaped with shown().
  struct Cell {
    Cell(std::string words) : text(std::move(words)) {}  // NOLINT: cells are mostly plain text
    Cell(const char* words) : text(words) {}             // NOLINT
    Cell(std::string words, support::Style look) : text(std::move(words)), style(look) {}

    std::string text;
    std::optional<support::Style> style{};
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells` must have one entry per column.
  void add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  // Titles, then rows; two spaces between columns, no trailing spaces.
  std::string to_text(const std::string& indent = "", support::Paint paint = {}) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// A table whose rows are printed one by one, as soon as they are known: a column is as wide as its
// widest cell so far.
class GrowingTable {
 public:
  // `widths` is what the columns need at least, as far as it is known.
  GrowingTable(std::vector<Table::Column> columns, std::vector<std::size_t> widths,
               support::Paint paint);

  std::string titles();
  std::string row(const std::vector<Table::Cell>& cells);

 private:
  std::vector<Table::Column> columns_;
  std::vector<std::size_t> widths_;
  support::Paint paint_;
};

}  // namespace attn::tools
