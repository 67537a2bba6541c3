#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

std::string joined(const std::vector<ast::Expr>& exprs) {
  std::string text;
  for (const ast::Expr& expr : exprs) {
    text += (text.empty() ? "" : ", ") + ast::to_dsl(expr);
  }
  return text;
}

std::string tensor_signature(const ast::Clause& clause, const ast::TensorClause& tensor) {
  std::string text = fmt::format("{} {}: {}[{}]", clause.keyword.text, tensor.name.text,
                                 tensor.dtype.text, joined(tensor.extents));
  for (const ast::Fact& fact : tensor.facts) {
    text += " " + fact.name.text;
    if (!fact.arguments.empty()) text += fmt::format("({})", joined(fact.arguments));
  }
  if (tensor.fallback) text += " = " + ast::to_dsl(*tensor.fallback);
  return text;
}

std::string function_head(const ast::FunctionClause& function) {
  std::string text = fmt::format("fn {}(", function.name.text);
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    text += (i == 0 ? "" : ", ") + function.parameters[i].text;
  }
  return text + ")";
}

std::string function_signature(const ast::FunctionClause& function) {
  if (function.lets.empty()) {
    return fmt::format("{} = {}", function_head(function), ast::to_dsl(function.value));
  }
  std::string text = function_head(function) + " {\n";
  for (const ast::LetClause& let : function.lets) {
    text += fmt::format("  {} = {};\n", let.name.text, ast::to_dsl(let.value));
  }
  return text + fmt::format("  return {};\n}}", ast::to_dsl(function.value));
}

std::string assigned(std::string_view before, const Symbol& symbol) {
  if (!symbol.value) return fmt::format("{} {}", before, symbol.name);
  return fmt::format("{} {} = {}", before, symbol.name, ast::to_dsl(*symbol.value));
}

std::string param_type(const Symbol& symbol) {
  return std::get<ast::ParamClause>(symbol.clause->body).dtype.text;
}

// The last paragraph of the comments above a clause.
std::string comment_above(const ast::Clause& clause) {
  const ast::CommentLines& lines = clause.comments.above;
  const auto blank = std::find(lines.rbegin(), lines.rend(), "");
  std::string text;
  for (auto line = blank.base(); line != lines.end(); ++line) {
    std::string_view words = *line;
    words.remove_prefix(std::min(words.find_first_not_of("# "), words.size()));
    text += (text.empty() ? "" : "\n") + std::string(words);
  }
  if (!clause.comments.beside.empty()) {
    text += (text.empty() ? "" : "\n") +
            clause.comments.beside.substr(std::min(clause.comments.beside.find_first_not_of("# "),
                                                   clause.comments.beside.size()));
  }
  return text;
}

// "branch far: k = k_far"
std::string branch_text(const ast::Clause* clause) {
  const auto& branch = std::get<ast::BranchClause>(clause->body);
  std::string text = "branch " + branch.name.text;
  for (const ast::BranchInput& input : branch.inputs) {
    text += &input == &branch.inputs.front() ? ": " : ", ";
    text += fmt::format("{} = {}", input.tensor.text, input.by.text);
  }
  return text;
}

std::string sizes_of(const Analysis& analysis, const ast::TensorClause& tensor) {
  std::string text;
  for (const ast::Expr& extent : tensor.extents) {
    const auto size = analysis.value_of(extent);
    if (!size) return "";
    text += (text.empty() ? "" : ", ") + to_text(*size);
  }
  return fmt::format("[{}]", text);
}

}  // namespace

std::string to_text(const ast::Number& number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

std::string signature_of(const Symbol& symbol) {
  switch (symbol.meaning) {
    case Meaning::attention: return "attention " + symbol.name;
    case Meaning::parameter: return assigned("parameter", symbol);
    case Meaning::dimension: return assigned("dims", symbol);
    case Meaning::tensor:
      return tensor_signature(*symbol.clause, std::get<ast::TensorClause>(symbol.clause->body));
    case Meaning::param: return fmt::format("param {}: {}", symbol.name, param_type(symbol));
    case Meaning::let: return assigned("let", symbol);
    case Meaning::branch: return branch_text(symbol.clause);
    case Meaning::function: return function_signature(*symbol.function);
    case Meaning::argument:
      return fmt::format("{}  # of {}", symbol.name, function_head(*symbol.function));
    case Meaning::local:
      return fmt::format("{} = {}  # in {}", symbol.name, ast::to_dsl(*symbol.value),
                         symbol.function->name.text);
    case Meaning::variable: return symbol.name + "  # the variable of a reduction";
    case Meaning::import: return fmt::format("import \"{}\";", symbol.name);
    case Meaning::word: break;
  }
  const Word* word = word_named(symbol.word, symbol.name);
  return word ? std::string(word->form) : symbol.name;
}

std::string prose_of(const Symbol& symbol) {
  if (symbol.meaning == Meaning::word) {
    const Word* word = word_named(symbol.word, symbol.name);
    return word ? std::string(word->text) : "";
  }
  if (symbol.meaning == Meaning::dimension) {
    const Word* word = word_named(WordKind::dimension, symbol.name);
    return word ? std::string(word->text) : "";
  }
  return symbol.clause ? comment_above(*symbol.clause) : "";
}

std::string value_of(const Analysis& analysis, const Symbol& symbol) {
  switch (symbol.meaning) {
    case Meaning::word:
      if (symbol.word != WordKind::dimension) return "";
      [[fallthrough]];
    case Meaning::dimension: {
      const auto size = analysis.size_of(symbol.name);
      return size ? to_text(*size) : "open";
    }
    case Meaning::parameter: {
      if (!symbol.value) return "to be bound";
      const auto value = analysis.value_of(*symbol.value);
      return value ? to_text(*value) : "";
    }
    case Meaning::tensor:
      return sizes_of(analysis, std::get<ast::TensorClause>(symbol.clause->body));
    case Meaning::param: return "bound at run time";
    case Meaning::let: return std::string(analysis.type_of(symbol.value->span));
    default: return "";
  }
}

}  // namespace attn::tools::lsp
