#include "compiler/ast/wrap.h"

#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/ast/print.h"

namespace attn::ast {
namespace {

constexpr int kBracket = 16;  // above every operator's precedence

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

}  // namespace

std::string wrap(std::string_view text, std::size_t indent) {
  const std::size_t width = indent + 1 < kColumns ? kColumns - indent - 1 : 1;
  if (text.size() <= width) return std::string(text);
  std::string out;
  std::size_t start = 0;
  const std::vector<Place> all = places(text);
  for (std::size_t next = 0; next < all.size() && text.size() - start > width;) {
    std::size_t best = next;  // even if it is beyond the width
    for (; next < all.size() && all[next].at <= start + width; ++next) {
      if (all[next].weight <= all[best].weight) best = next;
    }
    out += text.substr(start, all[best].at - start);
    out += "\n" + std::string(indent, ' ');
    start = all[best].at + 1;
    next = best + 1;
  }
  out += text.substr(start);
  return out;
}

}  // namespace attn::ast
