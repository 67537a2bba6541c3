// Reports undefined names and functions, with suggestions.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
using ir::Dim;
using ir::Op;
using support::quoted;

// Names of tensors that hold integers, by a part of them.
constexpr std::string_view kIntegers[] = {"len", "id",     "doc",   "seg",    "idx",   "index",
                                          "pos", "bucket", "block", "page",   "table", "count",
                                          "num", "start",  "end",   "offset", "seq",   "group"};

// The type that a tensor of this name most likely has.
std::string_view likely_type(std::string_view name, bool is_condition) {
  if (is_condition) return "bool";
  const auto is_part = [&](std::string_view part) { return name.find(part) != name.npos; };
  return std::ranges::any_of(kIntegers, is_part) ? "i32" : "f32";
}

// Whether the tensor holds a length for each batch entry.
bool is_length(const Expr& index) {
  return index.operands.size() == 1 && index.operands[0].text == "b" &&
         index.text.find("len") != std::string::npos;
}

// What to write for elements of q, k, v and of other tensors that every attention has; "" for
// other names.
std::string_view of_every_attention(std::string_view name) {
  constexpr std::string_view kInput =
      "elements of q, k and v cannot be read: `score` is the product of q and k; declare what else "
      "is needed: `tensor t: f32[B, Hq, Sq];`";
  if (name == "lengths_kv") return "the clause `lengths kv;` declares it";
  if (name == "lengths_q") return "the clause `lengths q;` declares it";
  if (name.starts_with("page_table")) return "pages are read by `layout paged(page = 64);` alone";
  if (name.starts_with("cu_seqlens")) return "packed sequences are read by `layout thd;` alone";
  if (name == "seed" || name == "offset") return "";
  if (name == "query" || name == "key" || name == "value") return kInput;
  if (name == "Q" || name == "K" || name == "V") return kInput;
  if (!contains(run_time_names(), name)) return "";
  if (contains(input_names(), name) || name == "kv" || name == "qkv") return kInput;
  return "outputs cannot be read";
}

// "tensor bias: f32[B, Hq, Sq, Skv];" for bias[b, h, q_idx, kv_idx].
std::string declaration_of(const Expr& index, std::string_view type) {
  std::string extents;
  for (const Expr& one : index.operands) {
    const std::string_view extent = one.text == "b"                              ? "B"
                                    : one.text == "h"                            ? "Hq"
                                    : one.text == "q_idx" || one.text == "q_raw" ? "Sq"
                                    : one.text == "kv_idx"                       ? "Skv"
                                    : one.text == "d_idx"                        ? "Dv"
                                                                                 : "N";
    extents += fmt::format("{}{}", extents.empty() ? "" : ", ", extent);
  }
  return fmt::format("tensor {}: {}[{}];", support::printable(index.text), type, extents);
}

// The file of the standard library that has a function of this name, or "".
std::string_view standard_file(std::string_view name) {
  for (const support::EmbeddedFile& file : standard_library()) {
    if (file.text.find(fmt::format("fn {}(", name)) != std::string_view::npos) return file.name;
  }
  return "";
}

// A call of this function of a standard file, such as `causal()` or `window(w)`; "" if `expr` calls
// it with as many arguments.
std::string standard_call(std::string_view file, const Expr& expr) {
  for (const support::EmbeddedFile& each : standard_library()) {
    const std::size_t at = each.text.find(fmt::format("fn {}(", expr.text));
    if (each.name != file || at == std::string_view::npos) continue;
    const std::string_view call = each.text.substr(at + 3, each.text.find(')', at) - at - 2);
    const bool has_none = call.ends_with("()");
    const auto count = static_cast<std::size_t>(std::ranges::count(call, ',')) + (has_none ? 0 : 1);
    const bool fits = expr.kind == ExprKind::call && expr.operands.size() == count;
    return fits ? "" : std::string(call);
  }
  return "";
}

// The beginning of the line at `offset`, if only spaces are before it there.
std::optional<std::uint32_t> line_begin(std::string_view text, std::uint32_t offset) {
  const std::size_t before = text.find_last_not_of(" \t", offset == 0 ? 0 : offset - 1);
  if (offset == 0 || before == text.npos) return 0;
  if (text[before] != '\n') return std::nullopt;
  return static_cast<std::uint32_t>(before + 1);
}

// Functions of NumPy and PyTorch that are operators here.
struct OperatorFunction {
  std::string_view name;
  std::string_view sign;
};
constexpr OperatorFunction kOperatorFunctions[] = {{"logical_and", "&&"},
                                                   {"logical_or", "||"},
                                                   {"logical_not", "!"},
                                                   {"bitwise_and", "&"},
                                                   {"bitwise_or", "|"},
                                                   {"logical_xor", "^"},
                                                   {"bitwise_xor", "^"},
                                                   {"bitwise_not", "~"},
                                                   {"ge", ">="},
                                                   {"greater_equal", ">="},
                                                   {"gt", ">"},
                                                   {"greater", ">"},
                                                   {"le", "<="},
                                                   {"less_equal", "<="},
                                                   {"lt", "<"},
                                                   {"less", "<"},
                                                   {"eq", "=="},
                                                   {"equal", "=="},
                                                   {"ne", "!="},
                                                   {"not_equal", "!="},
                                                   {"add", "+"},
                                                   {"subtract", "-"},
                                                   {"sub", "-"},
                                                   {"multiply", "*"},
                                                   {"mul", "*"},
                                                   {"divide", "/"},
                                                   {"div", "/"},
                                                   {"true_divide", "/"},
                                                   {"floor_divide", "//"},
                                                   {"remainder", "%"},
                                                   {"mod", "%"},
                                                   {"negative", "-"},
                                                   {"neg", "-"}};

// `(a >= b) && (c < d)` for logical_and(a >= b, c < d); "" for another function or number of
// arguments.
std::string with_operator(const Expr& call) {
  const auto* found = std::ranges::find(kOperatorFunctions, call.text, &OperatorFunction::name);
  if (found == std::end(kOperatorFunctions)) return "";
  const auto operand = [](const Expr& expr) {
    Expr alone = expr;
    alone.grouped = false;
    const std::string text = ast::to_dsl(alone);
    return expr.operators.empty() ? text : fmt::format("({})", text);
  };
  const bool is_unary = found->sign == "!" || found->sign == "~" || found->name.starts_with("neg");
  if (call.operands.size() != (is_unary ? 1 : 2)) return "";
  if (is_unary) return fmt::format("{}{}", found->sign, operand(call.operands[0]));
  return fmt::format("{} {} {}", operand(call.operands[0]), found->sign, operand(call.operands[1]));
}

// The operator that joins what `and_masks` and `or_masks` of FlexAttention combine, or "".
std::string_view joint(const Expr& expr) {
  if (expr.kind != ExprKind::call || expr.operands.empty()) return "";
  return expr.text == "and_masks" ? " && " : expr.text == "or_masks" ? " || " : "";
}

}  // namespace

void Scope::not_a_value(const Expr& expr, const ast::FunctionClause& function) {
  auto& diagnostic = report(Code::type_mismatch, expr.span,
                            fmt::format("{} is a function, not a value", quoted(expr.text)));
  diagnostic.help = fmt::format("call it: `{}`", call_of(function));
  if (has_usual_arguments(function)) rewrite(expr, call_of(function), diagnostic);
}

void Scope::unknown(const Expr& expr) {
  const auto imported = library_.functions.find(expr.text);
  if (expr.kind == ExprKind::name && imported != library_.functions.end()) {
    return not_a_value(expr, *imported->second);
  }
  std::vector<std::string_view> candidates;
  if (sees_spec()) candidates = names_of(false);
  for (const Local& local : locals_) candidates.push_back(local.name);
  candidates.insert(candidates.end(), bound_names().begin(), bound_names().end());
  candidates.insert(candidates.end(), dimension_names().begin(), dimension_names().end());
  auto& diagnostic =
      report(Code::unknown_name, expr.head, fmt::format("unknown name {}", quoted(expr.text)));
  const bool is_index = expr.kind == ExprKind::index;
  if (is_index) diagnostic.help = ast::hint_for(sink_.source(), of_every_attention(expr.text));
  if (!diagnostic.help.empty()) return;
  if (!is_index && is_function_here(expr)) suggest_import(expr, diagnostic);
  if (!diagnostic.help.empty()) return;
  suggestion(expr.text, candidates).put(diagnostic, expr.head);
  if (!diagnostic.help.empty()) return;
  if (is_index) return suggest_tensor(expr, diagnostic);
  const std::string name = support::printable(expr.text);
  const std::string parameter =
      sink_.source().is_json()
          ? fmt::format("\"parameters\": {{\"{}\": 128}}", name)
          : fmt::format("attention {}({} = 128) {{", support::printable(attention_.name), name);
  diagnostic.help =
      ast::hint_for(sink_.source(),
                    fmt::format("declare a constant of the plan as `{}`, a number of each call as "
                                "`param {}: i32;`",
                                parameter, name));
}

// Whether a function may be meant by a name that is not called: one without arguments, or where a
// condition or the value of a clause stands.
bool Scope::is_function_here(const Expr& expr) const {
  const bool is_whole = root_ == &expr || is_condition(expr);
  return is_whole || standard_call(standard_file(expr.text), expr).ends_with("()");
}

namespace {

// Whether `expr` is in `root` where a boolean must be.
bool is_boolean_in(const Expr& root, const Expr& expr) {
  if (&root == &expr) return true;
  const bool is_not = root.kind == ExprKind::unary && !root.operators.empty() &&
                      root.operators[0] != ast::Operator::negate &&
                      root.operators[0] != ast::Operator::plus;
  const bool joins =
      root.kind == ExprKind::binary &&
      ast::precedence(root.operators[0]) <= ast::precedence(ast::Operator::logical_and);
  return (is_not || joins) && std::ranges::any_of(root.operands, [&](const Expr& operand) {
           return is_boolean_in(operand, expr);
         });
}

}  // namespace

bool Scope::is_condition(const Expr& expr) const {
  return root_ != nullptr && wants_condition_ && is_boolean_in(*root_, expr);
}

void Scope::suggest_tensor(const Expr& index, diag::Diagnostic& diagnostic) const {
  const std::string declaration =
      declaration_of(index, likely_type(index.text, is_condition(index)));
  const std::string_view lengths =
      is_length(index)
          ? ", or write `lengths kv;` and read `lengths_kv[b]`: it also skips the keys "
            "past each length"
          : "";
  diagnostic.help =
      ast::hint_for(sink_.source(), fmt::format("declare it: `{}`{}", declaration, lengths));
  const auto line = line_begin(sink_.source().text(), clause_.begin);
  if (!line || clause_.end == 0 || sink_.source().is_json()) return;
  const std::string_view indent = sink_.source().text().substr(*line, clause_.begin - *line);
  diagnostic.fixes.push_back({"declare the tensor " + quoted(index.text),
                              {{{*line, *line}, fmt::format("{}{}\n", indent, declaration)}}});
}

void Scope::suggest_import(const Expr& expr, diag::Diagnostic& diagnostic) const {
  const std::string_view file = standard_file(expr.text);
  if (file.empty()) return;
  const std::string import = fmt::format("import \"{}\";", file);
  const std::string call = standard_call(file, expr);
  const std::string then = call.empty() ? "" : fmt::format(", and call it: `{}`", call);
  if (sink_.source().is_json()) {
    diagnostic.help = fmt::format(
        "the standard library has it: `\"preamble\": [{{\"import\": \"{}\"}}]`{}", file, then);
    return;
  }
  diagnostic.help =
      fmt::format("the standard library has it: `{}` above the attention{}", import, then);
  const auto line = line_begin(sink_.source().text(), attention_begin_);
  if (!line) return;
  diagnostic.fixes.push_back({"import " + quoted(file), {{{*line, *line}, import + "\n\n"}}});
  if (call.ends_with("()")) diagnostic.fixes.back().edits.push_back({expr.span, call});
}

// An element of the tensor: `bias[h, q_idx, kv_idx]` of a bias of the sizes of Hq, Sq and Skv. The
// name of an extent says more than its size, which several dimensions may have.
std::string Scope::example_of(const std::string& tensor, const Symbol& symbol) const {
  std::vector<std::pair<Dim, std::string_view>> free = {
      {Dim::B, "b"}, {Dim::Hq, "h"}, {Dim::Sq, "q_idx"}, {Dim::Skv, "kv_idx"}};
  const ir::Dag& dag = attention_.dag;
  const std::vector<ir::ExprId>& extents = attention_.find_tensor(tensor)->extents;
  std::vector<std::string_view> indexes(extents.size());
  const auto take = [&](std::size_t i, const auto& is_its) {
    const auto its = std::ranges::find_if(free | std::views::reverse, is_its);
    if (!indexes[i].empty() || its == free.rend()) return;
    indexes[i] = its->second;
    free.erase(std::next(its).base());
  };
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const ir::ExprId extent = extents[i];
    const std::string_view name = dag[extent].is(Op::dim_) ? dag.symbol_of(extent)
                                  : symbol.tensor          ? symbol.tensor->extents[i].text
                                                           : std::string_view();
    take(i, [&](const auto& index) { return to_string(index.first) == name; });
  }
  for (std::size_t i = extents.size(); i-- > 0;) {
    const auto size = ir::fold_integer(dag, extents[i]);
    take(i, [&](const auto& index) { return size && attention_.dims.get(index.first) == size; });
  }
  for (std::string_view& index : indexes) {
    if (index.empty()) index = "0";
  }
  return fmt::format("{}[{}]", tensor, fmt::join(indexes, ", "));
}

void Scope::unknown_function(const Expr& expr) {
  const auto found = sees_spec() ? symbols_.find(expr.text) : symbols_.end();
  if (found != symbols_.end() && found->second.kind == Symbol::Kind::poisoned) return;
  if (found == symbols_.end() && !library_.complete) return;  // reported where it is imported
  if (expr.text == "sum" && expr.operands.size() == 1) {
    report(Code::unknown_function, expr.head, "`sum` of one value is a sum along the row").help =
        "it stands only as the divisor of a weight, `weight f(score) / sum(g(score));`, where a "
        "factor stands in front: `0.5 * exp(score) / sum(exp(score))`; a sum of terms is written "
        "`sum(j in 0..K: e)`";
    return;
  }
  auto& diagnostic = report(Code::unknown_function, expr.head,
                            fmt::format("unknown function {}", quoted(expr.text)));
  if (found != symbols_.end()) {
    found->second.used = true;
    diagnostic.labels.push_back({found->second.span, "defined here"});
    if (found->second.kind == Symbol::Kind::tensor) {
      diagnostic.help = "a tensor is indexed with brackets: `t[b, kv_idx]`";
    }
    return;
  }
  std::vector<std::string_view> candidates = function_names();
  for (const std::string_view name : names_of(true)) candidates.push_back(name);
  for (const auto& [name, function] : library_.functions) candidates.push_back(name);
  std::string joined = joined_masks(expr);
  if (joined.empty()) {
    joined = with_operator(expr);
    if (!joined.empty() && root_ != &expr) joined = fmt::format("({})", joined);
  }
  if (!joined.empty()) {
    diagnostic.help = fmt::format("write `{}`", joined);
    return rewrite(expr, joined, diagnostic);
  }
  suggest_import(expr, diagnostic);
  if (diagnostic.help.empty()) {
    function_suggestion(expr.text, candidates).put(diagnostic, expr.head);
  }
}

// Whether a function has the arguments of a mod in FlexAttention, or none.
bool Scope::has_usual_arguments(const ast::FunctionClause& function) {
  const std::size_t count = function.parameters.size();
  const char first = count == 0 ? ' ' : function.parameters[0].text[0];
  return count == 0 || (count == 4 && first == 'b') || (count == 5 && first == 's');
}

// A call of the function, with the usual arguments of a mod: `causal(b, h, q_idx, kv_idx)`.
std::string Scope::call_of(const ast::FunctionClause& function) const {
  const std::size_t count = function.parameters.size();
  const char first = count == 0 ? ' ' : function.parameters[0].text[0];
  std::string arguments;
  if (count == 4 && first == 'b') {
    arguments = "b, h, q_idx, kv_idx";
  } else if (count == 5 && first == 's') {
    arguments = "score, b, h, q_idx, kv_idx";
  } else {
    for (const ast::Name& one : function.parameters) {
      arguments += (arguments.empty() ? "" : ", ") + one.text;
    }
  }
  return fmt::format("{}({})", function.name.text, arguments);
}

bool Scope::is_function_name(const Expr& expr) {
  if (!joint(expr).empty()) {
    return std::ranges::all_of(expr.operands,
                               [&](const Expr& operand) { return is_function_name(operand); });
  }
  return expr.kind == ExprKind::name && find_local(expr.text) == nullptr &&
         find_function(expr.text).has_value();
}

// `f(b, h, q_idx, kv_idx) && g(b, h, q_idx, kv_idx)` for and_masks(f, g); "" for anything else.
std::string Scope::joined_masks(const Expr& expr) {
  const std::string_view sign = joint(expr);
  if (sign.empty() || !is_function_name(expr)) return "";
  std::string text;
  for (const Expr& operand : expr.operands) {
    const bool is_joint = !joint(operand).empty();
    const std::string one = is_joint ? fmt::format("({})", joined_masks(operand))
                                     : call_of(*find_function(operand.text)->function);
    text += fmt::format("{}{}", text.empty() ? "" : sign, one);
  }
  return text;
}

}  // namespace attn::sema
