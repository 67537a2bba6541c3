#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/ast/json_text.h"
#include "compiler/ast/parse.h"
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
    case ExprKind::reduce:
      return fmt::format(
          "{{\"reduce\": {}, \"variable\": {}, \"from\": {}, \"to\": {}, \"value\": {}}}",
          text(expr.text), text(expr.operands[0].text), json(expr.operands[1]),
          json(expr.operands[2]), json(expr.operands[3]));
    case ExprKind::list: return array(expr.operands);
  }
  return {};
}

std::string member(const Name& name, const std::optional<Expr>& value) {
  return fmt::format("{}: {}", text(name.text), value ? json(*value) : "null");
}

std::string dim(const DimEntry& entry) {
  if (entry.set.empty()) return member(entry.name, entry.size);
  return fmt::format("{}: {}", text(entry.name.text), array(entry.set));
}

// {"strides": [1, 2]} or {"paged": {"page": 64}}; a list if named and positional arguments are
// mixed.
std::string layout(const LayoutEntry& entry) {
  if (entry.arguments.empty()) return text(entry.kind.text);
  const auto argument = [](const LayoutArgument& a) {
    return a.name ? fmt::format("{{{}}}", member(*a.name, a.value)) : json(a.value);
  };
  const auto named = [](const LayoutArgument& a) { return member(*a.name, a.value); };
  const bool all_named = std::ranges::all_of(
      entry.arguments, [](const LayoutArgument& a) { return a.name.has_value(); });
  const std::string arguments = all_named ? "{" + joined(entry.arguments, named) + "}"
                                          : "[" + joined(entry.arguments, argument) + "]";
  return fmt::format("{{{}: {}}}", text(entry.kind.text), arguments);
}

std::string names(const std::vector<Name>& list) {
  return "[" + joined(list, [](const Name& name) { return text(name.text); }) + "]";
}

// "monotone" or {"runs": [8]}.
std::string fact(const Fact& fact) {
  if (fact.arguments.empty()) return text(fact.name.text);
  return fmt::format("{{{}: {}}}", text(fact.name.text), array(fact.arguments));
}

std::string optional_member(std::string_view key, const std::optional<Expr>& value) {
  return value ? fmt::format(", \"{}\": {}", key, json(*value)) : "";
}

// "o": {"dtype": "bf16"} or "scale_s": 256
std::string quantize_entry(const QuantizeEntry& entry) {
  if (!entry.dtype) return member(entry.name, entry.fallback);
  return fmt::format("{}: {{\"dtype\": {}}}", text(entry.name.text), text(entry.dtype->text));
}

// What follows the clause keyword: its value and other members.
struct JsonBodyPrinter {
  std::string operator()(const DimsClause& clause) const {
    return "{" + joined(clause.entries, dim) + "}";
  }
  std::string operator()(const DtypeClause& clause) const {
    if (clause.entries.empty()) return text(clause.dtype.text);
    const auto entry = [](const DtypeEntry& each) {
      return fmt::format("{}: {}", text(each.tensor.text), text(each.dtype.text));
    };
    return fmt::format("{}, \"with\": {{{}}}", text(clause.dtype.text),
                       joined(clause.entries, entry));
  }
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
    const std::string facts =
        clause.facts.empty() ? "" : fmt::format(", \"facts\": [{}]", joined(clause.facts, fact));
    return fmt::format("{}, \"dtype\": {}, \"shape\": {}{}{}", text(clause.name.text),
                       text(clause.dtype.text), array(clause.extents), facts,
                       optional_member("default", clause.fallback));
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
  std::string operator()(const OutputsClause& clause) const { return names(clause.outputs); }
  std::string operator()(const SinkClause& clause) const { return json(clause.value); }
  std::string operator()(const DropoutClause& clause) const {
    return json(clause.probability) + optional_member("keep", clause.keep);
  }
  std::string operator()(const LengthsClause& clause) const {
    return "{" +
           joined(clause.entries,
                  [](const LengthsEntry& e) { return member(e.side, e.fallback); }) +
           "}";
  }
  std::string operator()(const GradClause& clause) const { return names(clause.tensors); }
  std::string operator()(const DeterministicClause&) const { return "true"; }
  std::string operator()(const NormalizeClause& clause) const { return text(clause.by.text); }
  std::string operator()(const PrologueClause& clause) const {
    return fmt::format("{}, \"value\": {}", text(clause.tensor.text), json(clause.value));
  }
  std::string operator()(const WeightClause& clause) const { return json(clause.value); }
  std::string operator()(const EpilogueClause& clause) const { return json(clause.value); }
  std::string operator()(const BranchClause& clause) const {
    if (clause.inputs.empty()) return text(clause.name.text);
    const auto input = [](const BranchInput& each) {
      return fmt::format("{}: {}", text(each.tensor.text), text(each.by.text));
    };
    return fmt::format("{}, \"inputs\": {{{}}}", text(clause.name.text),
                       joined(clause.inputs, input));
  }
  std::string operator()(const ValuesClause& clause) const {
    return fmt::format("{}, \"from\": {}, \"to\": {}", text(clause.tensor.text), json(clause.first),
                       json(clause.end));
  }
  std::string operator()(const GatherClause& clause) const {
    if (!clause.counts) return text(clause.keys.text);
    return fmt::format("{}, \"counts\": {}", text(clause.keys.text), text(clause.counts->text));
  }
  std::string operator()(const ShardClause& clause) const { return text(clause.axis.text); }
  std::string operator()(const QuantizeClause& clause) const {
    std::string out = text(clause.by.text);
    if (clause.of) out += fmt::format(", \"of\": {}", text(clause.of->text));
    if (clause.entries.empty()) return out;
    return fmt::format("{}, \"with\": {{{}}}", out, joined(clause.entries, quantize_entry));
  }
  std::string operator()(const FunctionClause& clause) const {
    const auto let = [](const LetClause& l) {
      return fmt::format("{{\"let\": {}, \"value\": {}}}", text(l.name.text), json(l.value));
    };
    const std::string lets =
        clause.lets.empty() ? "" : ", \"lets\": [" + joined(clause.lets, let) + "]";
    return fmt::format("{}, \"parameters\": {}{}, \"value\": {}", text(clause.name.text),
                       names(clause.parameters), lets, json(clause.value));
  }
  std::string operator()(const ImportClause& clause) const { return text(clause.path.text); }
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

std::string clauses(const std::vector<Clause>& list) {
  std::string out = "[\n";
  for (const Clause& clause : list) {
    if (&clause != &list.front()) out += ",\n";
    out += "    " + to_json(clause);
  }
  return out + "\n  ]";
}

std::string header(const Spec& spec) {
  std::string out = spec.is_library ? "  \"library\": true"
                                    : fmt::format("  \"attention\": {}", text(spec.name.text));
  if (!spec.schema.empty()) out = fmt::format("  \"$schema\": {},\n{}", text(spec.schema), out);
  for (const std::string& member :
       {further(spec.comments), further("end", spec.end), further("below", spec.below)}) {
    out += member;
  }
  return out + ",\n";
}

// A clause of the DSL in JSON, if the text is one.
std::optional<std::string> clause_in_json(std::string_view text) {
  const support::Source source("hint.attn", fmt::format("attention hint {{ {} }}", text));
  diag::Sink sink(source);
  const std::optional<Spec> spec = parse_dsl(source, sink);
  if (!spec || spec->clauses.size() != 1) return std::nullopt;
  return to_json(spec->clauses.front());
}

}  // namespace

std::string to_json(const Clause& clause) {
  return fmt::format("{{{}: {}{}}}", text(clause.keyword.text),
                     std::visit(JsonBodyPrinter(), clause.body), further(clause.comments));
}

std::string hint_for(const support::Source& source, std::string_view hint) {
  if (!source.is_json()) return std::string(hint);
  std::string out;
  for (bool quoted = false;; quoted = !quoted) {
    const std::string_view part = hint.substr(0, hint.find('`'));
    const bool may_be_clause = quoted && part.ends_with(';');
    const auto clause = may_be_clause ? clause_in_json(part) : std::nullopt;
    out += clause ? *clause : std::string(part);
    if (part.size() == hint.size()) return out;
    out += '`';
    hint.remove_prefix(part.size() + 1);
  }
}

std::string to_json(const Spec& spec) {
  std::string out = "{\n" + header(spec);
  if (!spec.preamble.empty()) out += "  \"preamble\": " + clauses(spec.preamble);
  if (spec.is_library) return out + "\n}\n";
  if (!spec.preamble.empty()) out += ",\n";
  if (!spec.parameters.empty()) {
    out += fmt::format(
        "  \"parameters\": {{{}}},\n",
        joined(spec.parameters, [](const SpecParameter& p) { return member(p.name, p.value); }));
  }
  return out + "  \"clauses\": " + clauses(spec.clauses) + "\n}\n";
}

}  // namespace attn::ast
