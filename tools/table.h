// Formats text in columns.
#pragma once

#include <string>
#include <vector>

namespace attn::tools {

enum class Align : unsigned char { left, right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells` must have one entry per column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  // Titles, then rows; two spaces between columns, no trailing spaces. Cells may hold any text:
  // they are escaped with shown().
  std::string to_text(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace attn::tools
