#include <fmt/format.h>

#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/ast/print.h"

namespace attn::ast {
namespace {

constexpr int kLeafPrecedence = 100;
constexpr std::string_view kIndent = "  ";

int precedence_of(const Expr& expr) {
  return expr.operators.empty() ? kLeafPrecedence : precedence(expr.operators[0]);
}

std::string join(const std::vector<Expr>& exprs) {
  std::string out;
  for (const Expr& expr : exprs) out += (out.empty() ? "" : ", ") + to_dsl(expr);
  return out;
}

std::string operand(const Expr& expr, bool in_parentheses) {
  const std::string text = to_dsl(expr);
  return in_parentheses ? "(" + text + ")" : text;
}

// Parenthesized if it binds less tightly than `least`.
std::string operand(const Expr& expr, int least) {
  return operand(expr, precedence_of(expr) < least);
}

// `(a && b) || c` needs no parentheses, but they make it clearer.
bool is_unclear(const Expr& expr, Operator within) {
  return within == Operator::logical_or && precedence_of(expr) == precedence(Operator::logical_and);
}

// The lower bound of a range: `1.` before `..` would be lexed as a different number.
std::string bound(const Expr& expr) {
  std::string text = to_dsl(expr);
  return text.ends_with('.') ? "(" + std::move(text) + ")" : text;
}

std::string binary(const Expr& expr) {
  const Operator op = expr.operators[0];
  const int own = precedence(op);
  const bool from_right = op == Operator::pow;
  // The exponent may be signed: 2 ** -x.
  const int right = from_right ? precedence(Operator::negate) : own + 1;
  const int left = from_right ? own + 1 : own;
  const auto side = [&](const Expr& inner, int least) {
    return operand(inner, precedence_of(inner) < least || is_unclear(inner, op));
  };
  return fmt::format("{} {} {}", side(expr.operands[0], left), spelling(op),
                     side(expr.operands[1], right));
}

std::string comparison(const Expr& expr) {
  const int inside = precedence(expr.operators[0]) + 1;
  std::string out = operand(expr.operands[0], inside);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    out +=
        fmt::format(" {} {}", spelling(expr.operators[i]), operand(expr.operands[i + 1], inside));
  }
  return out;
}

std::string join(const std::vector<Name>& names) {
  std::string out;
  for (const Name& name : names) out += (out.empty() ? "" : ", ") + name.text;
  return out;
}

std::string join(const std::vector<LayoutArgument>& arguments) {
  std::string out;
  for (const LayoutArgument& argument : arguments) {
    out += out.empty() ? "" : ", ";
    if (argument.name) out += argument.name->text + " = ";
    out += to_dsl(argument.value);
  }
  return out;
}

std::string fallback(const std::optional<Expr>& value) {
  return value ? " = " + to_dsl(*value) : "";
}

struct BodyPrinter {
  std::string operator()(const DimsClause& clause) const {
    std::string out;
    for (const DimEntry& entry : clause.entries) {
      out += (out.empty() ? "" : ", ") + entry.name.text;
      if (entry.size) out += " = " + to_dsl(*entry.size);
      if (!entry.set.empty()) out += " = {" + join(entry.set) + "}";
    }
    return out;
  }
  std::string operator()(const DtypeClause& clause) const {
    std::string out = clause.dtype.text;
    for (const DtypeEntry& entry : clause.entries)
      out += fmt::format(", {}: {}", entry.tensor.text, entry.dtype.text);
    return out;
  }
  std::string operator()(const LayoutClause& clause) const {
    std::string out;
    for (const LayoutEntry& entry : clause.entries) {
      if (!out.empty()) out += ", ";
      if (entry.tensor) out += entry.tensor->text + ": ";
      out += entry.kind.text;
      if (!entry.arguments.empty()) out += "(" + join(entry.arguments) + ")";
    }
    return out;
  }
  std::string operator()(const TensorClause& clause) const {
    std::string out =
        fmt::format("{}: {}[{}]", clause.name.text, clause.dtype.text, join(clause.extents));
    for (const Fact& fact : clause.facts) {
      out += " " + fact.name.text;
      if (!fact.arguments.empty()) out += fmt::format("({})", join(fact.arguments));
    }
    return out + fallback(clause.fallback);
  }
  std::string operator()(const ParamClause& clause) const {
    return fmt::format("{}: {}", clause.name.text, clause.dtype.text);
  }
  std::string operator()(const LetClause& clause) const {
    return fmt::format("{} = {}", clause.name.text, to_dsl(clause.value));
  }
  std::string operator()(const ScaleClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const ScoreClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const MaskClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const OutputsClause& clause) const { return join(clause.outputs); }
  std::string operator()(const AlignClause& clause) const { return clause.align.text; }
  std::string operator()(const SinkClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const DropoutClause& clause) const {
    return to_dsl(clause.probability) + (clause.keep ? ", " + to_dsl(*clause.keep) : "");
  }
  std::string operator()(const LengthsClause& clause) const {
    std::string out;
    for (const LengthsEntry& entry : clause.entries) {
      out += (out.empty() ? "" : ", ") + entry.side.text + fallback(entry.fallback);
    }
    return out;
  }
  std::string operator()(const GradClause& clause) const { return join(clause.tensors); }
  std::string operator()(const DeterministicClause&) const { return ""; }
  std::string operator()(const NormalizeClause& clause) const { return clause.by.text; }
  std::string operator()(const PrologueClause& clause) const {
    return fmt::format("{}: {}", clause.tensor.text, to_dsl(clause.value));
  }
  std::string operator()(const WeightClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const EpilogueClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const BranchClause& clause) const {
    std::string out = clause.name.text;
    for (const BranchInput& input : clause.inputs) {
      out += &input == &clause.inputs.front() ? ": " : ", ";
      out += fmt::format("{} = {}", input.tensor.text, input.by.text);
    }
    return out;
  }
  std::string operator()(const ValuesClause& clause) const {
    return fmt::format("{}[{}..{}]", clause.tensor.text, to_dsl(clause.first), to_dsl(clause.end));
  }
  std::string operator()(const GatherClause& clause) const {
    return clause.keys.text + (clause.counts ? ", " + clause.counts->text : "");
  }
  std::string operator()(const ShardClause& clause) const { return clause.axis.text; }
  std::string operator()(const QuantizeClause& clause) const {
    std::string out = clause.by.text;
    if (clause.of) out += fmt::format("({})", clause.of->text);
    for (const QuantizeEntry& entry : clause.entries) {
      out += ", " + entry.name.text;
      out += entry.dtype ? ": " + entry.dtype->text : fallback(entry.fallback);
    }
    return out;
  }
  std::string operator()(const FunctionClause& clause) const {
    return fmt::format("{}({}) = {}", clause.name.text, join(clause.parameters),
                       to_dsl(clause.value));
  }
  std::string operator()(const ImportClause& clause) const {
    return "\"" + clause.path.text + "\"";
  }
  std::string operator()(const OtherClause& clause) const {
    return fmt::format("{}", fmt::join(clause.words, " "));
  }
};

std::string lines(const CommentLines& comments, std::string_view indent) {
  std::string out;
  for (const std::string& line : comments) {
    out += line.empty() ? "\n" : fmt::format("{}{}\n", indent, line);
  }
  return out;
}

std::string beside(const Comments& comments) {
  return comments.beside.empty() ? "\n" : "  " + comments.beside + "\n";
}

// One statement of a function body.
std::string body_line(std::string_view indent, const std::string& head, const Expr& value) {
  const std::string start = fmt::format("{}{}{} ", indent, kIndent, head);
  return start + wrap(to_dsl(value), start.size()) + ";\n";
}

std::string function_lines(const FunctionClause& clause, std::string_view indent) {
  std::string out =
      fmt::format("{}fn {}({}) {{\n", indent, clause.name.text, join(clause.parameters));
  for (const LetClause& let : clause.lets)
    out += body_line(indent, let.name.text + " =", let.value);
  return out + body_line(indent, "return", clause.value) + std::string(indent) + "}";
}

// The lines of a clause, with its comments.
std::string clause_lines(const Clause& clause, std::string_view indent) {
  std::string out = lines(clause.comments.above, indent);
  const auto* function = std::get_if<FunctionClause>(&clause.body);
  if (function && !function->lets.empty()) {
    return out + function_lines(*function, indent) + beside(clause.comments);
  }
  if (const auto* import = std::get_if<ImportClause>(&clause.body)) {  // a path is never broken
    return out + fmt::format("{}import \"{}\";", indent, import->path.text) +
           beside(clause.comments);
  }
  out += fmt::format("{}{:<{}} ", indent, clause.keyword.text, function ? 0 : 7);
  const std::size_t line_start = out.rfind('\n') + 1;  // npos + 1 is 0
  const std::string body = std::visit(BodyPrinter(), clause.body);
  if (body.empty()) out.erase(out.find_last_not_of(' ') + 1);
  out += wrap(body, out.size() - line_start) + ";";
  return out + beside(clause.comments);
}

std::string parameters(const Spec& spec) {
  std::string out;
  for (const SpecParameter& parameter : spec.parameters) {
    out += (out.empty() ? "" : ", ") + parameter.name.text;
    if (parameter.value) out += " = " + to_dsl(*parameter.value);
  }
  return out.empty() ? "" : "(" + out + ")";
}

}  // namespace

std::string to_dsl(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::number:
    case ExprKind::boolean:
    case ExprKind::name: return expr.text;
    case ExprKind::unary: {
      const Operator op = expr.operators[0];
      return std::string(spelling(op)) + operand(expr.operands[0], precedence(op));
    }
    case ExprKind::binary: return binary(expr);
    case ExprKind::compare: return comparison(expr);
    case ExprKind::call: return fmt::format("{}({})", expr.text, join(expr.operands));
    case ExprKind::index: return fmt::format("{}[{}]", expr.text, join(expr.operands));
    case ExprKind::reduce:
      return fmt::format("{}({} in {}..{}: {})", expr.text, expr.operands[0].text,
                         bound(expr.operands[1]), to_dsl(expr.operands[2]),
                         to_dsl(expr.operands[3]));
    case ExprKind::list: return fmt::format("[{}]", join(expr.operands));
  }
  return {};
}

std::string to_dsl(const Spec& spec) {
  static constexpr std::string_view kHead = "attention ";
  std::string out;
  for (const Clause& item : spec.preamble) out += clause_lines(item, "");
  if (spec.is_library) return out + lines(spec.below, "");
  out += lines(spec.comments.above, "");
  out += kHead;
  out += wrap(spec.name.text + parameters(spec), kHead.size());
  out += " {" + beside(spec.comments);
  for (const Clause& clause : spec.clauses) out += clause_lines(clause, kIndent);
  return out + lines(spec.end, kIndent) + "}\n" + lines(spec.below, "");
}

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
