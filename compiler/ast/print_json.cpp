#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/ast/json_text.h"
#include "compiler/ast/print.h"

namespace attn::ast {
namespace {

std::string text(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string number(const std::string& spelling) {
  return is_json_number(spelling) ? spelling : fmt::format("{{\"number\": {}}}", text(spelling));
}

std::string json(const Expr& expr);

template <typename List, typename Print>
std::string joined(const List& list, Print print) {
  std::string out;
  for (const auto& item : list) out += (out.empty() ? "" : ", ") + print(item);
  return out;
}

std::string array(const std::vector<Expr>& exprs) { return "[" + joined(exprs, json) + "]"; }

std::string operation(std::string_view form, const std::string& what, const Expr& expr) {
  return fmt::format("{{\"{}\": {}, \"args\": {}}}", form, what, array(expr.operands));
}

std::string sign(Operator op) { return fmt::format("\"{}\"", spelling(op)); }

bool is_negative_number(const Expr& expr) {
  return expr.operators[0] == Operator::negate && expr.operands[0].kind == ExprKind::number &&
         is_json_number(expr.operands[0].text);
}

std::string json(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::number: return number(expr.text);
    case ExprKind::boolean: return expr.text;
    case ExprKind::name: return text(expr.text);
    case ExprKind::unary:
      if (is_negative_number(expr)) return "-" + expr.operands[0].text;
      [[fallthrough]];
    case ExprKind::binary: return operation("op", sign(expr.operators[0]), expr);
    case ExprKind::compare:
      if (expr.operators.size() == 1) return operation("op", sign(expr.operators[0]), expr);
      return operation("compare", "[" + joined(expr.operators, sign) + "]", expr);
    case ExprKind::call: return operation("call", text(expr.text), expr);
    case ExprKind::index: return operation("index", text(expr.text), expr);
  }
  return {};
}

std::string member(const Name& name, const std::optional<Expr>& value) {
  return fmt::format("{}: {}", text(name.text), value ? json(*value) : "null");
}

std::string layout(const LayoutEntry& entry) {
  if (entry.strides.empty()) return text(entry.kind.text);
  return fmt::format("{{{}: {}}}", text(entry.kind.text), array(entry.strides));
}

// What follows the clause's word: its value, and further members.
struct BodyPrinter {
  std::string operator()(const DimsClause& clause) const {
    return "{" + joined(clause.entries, [](const DimEntry& e) { return member(e.name, e.size); }) +
           "}";
  }
  std::string operator()(const DtypeClause& clause) const { return text(clause.dtype.text); }
  std::string operator()(const LayoutClause& clause) const {
    if (!clause.entries[0].tensor) return layout(clause.entries[0]);
    return "{" +
           joined(clause.entries,
                  [](const LayoutEntry& e) {
                    return fmt::format("{}: {}", e.tensor ? text(e.tensor->text) : "\"\"",
                                       layout(e));
                  }) +
           "}";
  }
  std::string operator()(const TensorClause& clause) const {
    return fmt::format("{}, \"dtype\": {}, \"shape\": {}", text(clause.name.text),
                       text(clause.dtype.text), array(clause.extents));
  }
  std::string operator()(const ParamClause& clause) const {
    return fmt::format("{}, \"dtype\": {}", text(clause.name.text), text(clause.dtype.text));
  }
  std::string operator()(const LetClause& clause) const {
    return fmt::format("{}, \"value\": {}", text(clause.name.text), json(clause.value));
  }
  std::string operator()(const ScaleClause& clause) const { return json(clause.value); }
  std::string operator()(const ScoreClause& clause) const { return json(clause.value); }
  std::string operator()(const MaskClause& clause) const { return json(clause.value); }
  std::string operator()(const OutputsClause& clause) const {
    return "[" + joined(clause.outputs, [](const Name& name) { return text(name.text); }) + "]";
  }
  std::string operator()(const AlignClause& clause) const { return text(clause.align.text); }
  std::string operator()(const OtherClause& clause) const {
    return "[" + joined(clause.words, text) + "]";
  }
};

// `, "key": [...]`, or nothing without comments.
std::string further(std::string_view key, const CommentLines& lines) {
  return lines.empty() ? "" : fmt::format(", \"{}\": [{}]", key, joined(lines, text));
}

std::string further(const Comments& comments) {
  std::string out = further("above", comments.above);
  if (!comments.beside.empty()) out += ", \"beside\": " + text(comments.beside);
  return out;
}

std::string clause_object(const Clause& clause) {
  return fmt::format("    {{{}: {}{}}}", text(clause.keyword.text),
                     std::visit(BodyPrinter(), clause.body), further(clause.comments));
}

std::string header(const Spec& spec) {
  std::string out = fmt::format("  \"attention\": {}", text(spec.name.text));
  if (!spec.schema.empty()) out = fmt::format("  \"$schema\": {},\n{}", text(spec.schema), out);
  for (const std::string& member :
       {further(spec.comments), further("end", spec.end), further("below", spec.below)}) {
    out += member;
  }
  return out + ",\n";
}

}  // namespace

std::string to_json(const Spec& spec) {
  std::string out = "{\n" + header(spec);
  if (!spec.parameters.empty()) {
    out += fmt::format(
        "  \"parameters\": {{{}}},\n",
        joined(spec.parameters, [](const SpecParameter& p) { return member(p.name, p.value); }));
  }
  out += "  \"clauses\": [\n";
  for (const Clause& clause : spec.clauses) {
    if (&clause != &spec.clauses.front()) out += ",\n";
    out += clause_object(clause);
  }
  return out + "\n  ]\n}\n";
}

}  // namespace attn::ast
