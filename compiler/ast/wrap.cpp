#include "compiler/ast/wrap.h"

#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/ast/print.h"

namespace attn::ast {
namespace {

constexpr int kBracket = 16;  // above every operator's precedence
// Columns that a line within a parenthesis keeps; with fewer, it begins further left.
constexpr std::size_t kLeastWidth = 24;

struct Place {
  std::size_t at;  // of the space
  int weight;      // lower: a better place to break
};

std::vector<Place> places(std::string_view text) {
  std::vector<Place> found;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c != ' ' || i == 0) continue;
    const std::string_view rest = text.substr(i + 1);
    const auto op = parse_operator(rest.substr(0, rest.find(' ')), 2);
    if (text[i - 1] == ',') found.push_back({i, depth * kBracket});
    if (op) found.push_back({i, depth * kBracket + precedence(*op)});
  }
  return found;
}

// Where lines begin: behind the innermost parenthesis that is open.
class Columns {
 public:
  explicit Columns(std::size_t first) : first_(first) {}

  std::size_t next() const {
    for (auto column = open_.rbegin(); column != open_.rend(); ++column) {
      if (*column + kLeastWidth <= kColumns) return *column;
    }
    return first_;
  }
  // Takes a line that begins at `column`.
  void add(std::string_view line, std::size_t column) {
    for (const char c : line) {
      ++column;
      if (c == '(' || c == '[') open_.push_back(column);
      if ((c == ')' || c == ']') && !open_.empty()) open_.pop_back();
    }
  }

 private:
  std::size_t first_;
  std::vector<std::size_t> open_;  // the column behind each
};

}  // namespace

std::string wrap(std::string_view text, std::size_t indent) {
  std::string out;
  std::size_t start = 0, column = indent;
  Columns columns(indent);
  const auto width = [&] { return column + 1 < kColumns ? kColumns - column - 1 : 1; };
  const std::vector<Place> all = places(text);
  for (std::size_t next = 0; next < all.size() && text.size() - start > width();) {
    std::size_t best = next;  // even if it is beyond the width
    for (; next < all.size() && all[next].at <= start + width(); ++next) {
      if (all[next].weight <= all[best].weight) best = next;
    }
    const std::string_view line = text.substr(start, all[best].at - start);
    columns.add(line, column);
    column = columns.next();
    out += line;
    out += "\n" + std::string(column, ' ');
    start = all[best].at + 1;
    next = best + 1;
  }
  out += text.substr(start);
  return out;
}

}  // namespace attn::ast
