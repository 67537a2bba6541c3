#include "compiler/ast/build_dsl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace attn::ast {
namespace {

using antlr4::ParserRuleContext;
using antlr4::tree::ParseTree;
using antlr4::tree::TerminalNode;
using diag::Code;

class Builder {
 public:
  explicit Builder(diag::Sink& sink) : sink_(sink) {}

  std::optional<Spec> spec(Grammar::FileContext* file) {
    Spec spec;
    for (auto* context : file->item()) spec.preamble.push_back(item(context));
    if (auto* attention = file->attention()) {
      this->attention(attention, spec);
    } else {
      no_attention(file, spec);
    }
    if (failed_) return std::nullopt;
    return spec;
  }

  // The items and clauses without syntax errors.
  std::optional<Spec> incomplete(Grammar::FileContext* file) {
    Spec spec;
    for (auto* context : file->item()) {
      if (is_whole(context)) spec.preamble.push_back(item(context));
    }
    auto* attention = file->attention();
    spec.is_library = attention == nullptr;
    if (attention) {
      if (!attention->name() || !is_whole(attention->name())) return std::nullopt;
      spec.name = name(attention->name());
      const auto* stop = attention->getStop();
      spec.span = {span_of(attention->getStart()).begin,
                   stop ? span_of(stop).end : spec.name.span.end};
      if (auto* parameters = attention->parameters(); parameters && is_whole(parameters)) {
        put_parameters(parameters, spec);
      }
      for (auto* context : attention->clause()) {
        if (is_whole(context)) spec.clauses.push_back(clause(context));
      }
    }
    return spec;
  }

 private:
  void attention(Grammar::AttentionContext* attention, Spec& spec) {
    spec.name = name(attention->name());
    spec.span = span_of(attention);
    if (auto* parameters = attention->parameters()) put_parameters(parameters, spec);
    for (auto* context : attention->clause()) spec.clauses.push_back(clause(context));
  }

  void put_parameters(Grammar::ParametersContext* parameters, Spec& spec) {
    for (auto* parameter : parameters->parameter()) {
      spec.parameters.push_back({name(parameter->name()), optional_expr(parameter->expr())});
    }
  }

  // Whether there was no syntax error in it.
  static bool is_whole(ParseTree* node) {
    if (dynamic_cast<antlr4::tree::ErrorNode*>(node)) return false;
    const auto* rule = dynamic_cast<ParserRuleContext*>(node);
    if (rule && (rule->exception || rule->children.empty())) return false;
    return std::ranges::all_of(node->children, is_whole);
  }

  void no_attention(Grammar::FileContext* file, Spec& spec) {
    spec.is_library = true;
    spec.span = span_of(file->getStop());
    if (!spec.preamble.empty()) return;
    sink_.report(Code::syntax, spec.span, "expected an attention, found the end of the file").help =
        "a spec begins with `attention name {`; a library has `fn` and `import` items";
    failed_ = true;
  }

  Clause item(Grammar::ItemContext* context) {
    Clause clause{span_of(context), word(context->getStart()), {}};
    if (auto* import = context->importItem()) {
      // From the source: the lexer has seen substitutes for non-ASCII bytes.
      const Span span = span_of(import->STRING()->getSymbol());
      const auto path = sink_.source().text().substr(span.begin + 1, span.end - span.begin - 2);
      clause.body = ImportClause{{std::string(path), span}};
    } else {
      clause.body = function(context->functionClause());
    }
    return clause;
  }

  static Name name(Grammar::NameContext* context) {
    return {context->getText(), span_of(context->getStart())};
  }

  static Name word(antlr4::Token* token) { return {token->getText(), span_of(token)}; }

  static Clause other(ParserRuleContext* context) {
    OtherClause body;
    collect_words(context, body.words);
    body.words.erase(body.words.begin());
    return {span_of(context), word(context->getStart()), std::move(body)};
  }

  static void collect_words(ParseTree* node, std::vector<std::string>& words) {
    if (auto* leaf = dynamic_cast<TerminalNode*>(node)) {
      const std::string text = leaf->getText();
      if (std::isalnum(static_cast<unsigned char>(text[0])) || text[0] == '_') {
        words.push_back(text);
      }
    }
    for (ParseTree* child : node->children) collect_words(child, words);
  }

  Clause clause(Grammar::ClauseContext* context) {
    auto* inner = dynamic_cast<ParserRuleContext*>(context->children[0]);
    Clause clause{span_of(context), word(context->getStart()), {}};
    switch (inner->getRuleIndex()) {
      case Grammar::RuleDimsClause: clause.body = dims(context->dimsClause()); break;
      case Grammar::RuleDtypeClause: clause.body = dtype(context->dtypeClause()); break;
      case Grammar::RuleLayoutClause: clause.body = layout(context->layoutClause()); break;
      case Grammar::RuleTensorClause: clause.body = tensor(context->tensorClause()); break;
      case Grammar::RuleParamClause: {
        auto* c = context->paramClause();
        clause.body = ParamClause{name(c->name(0)), name(c->name(1))};
        break;
      }
      case Grammar::RuleLetClause:
        clause.body =
            LetClause{name(context->letClause()->name()), expr(context->letClause()->expr())};
        break;
      case Grammar::RuleScaleClause:
        clause.body = ScaleClause{expr(context->scaleClause()->expr())};
        break;
      case Grammar::RuleScoreClause:
        clause.body = ScoreClause{expr(context->scoreClause()->expr())};
        break;
      case Grammar::RuleMaskClause:
        clause.body = MaskClause{expr(context->maskClause()->expr())};
        break;
      case Grammar::RuleOutputsClause:
        clause.body = OutputsClause{names(context->outputsClause()->name())};
        break;
      case Grammar::RuleAlignClause:
        clause.body = AlignClause{name(context->alignClause()->name())};
        break;
      case Grammar::RuleSinkClause:
        clause.body = SinkClause{expr(context->sinkClause()->expr())};
        break;
      case Grammar::RuleDropoutClause: {
        auto* c = context->dropoutClause();
        clause.body = DropoutClause{expr(c->expr(0)), optional_expr(c->expr(1))};
        break;
      }
      case Grammar::RuleLengthsClause: clause.body = lengths(context->lengthsClause()); break;
      case Grammar::RuleGradClause:
        clause.body = GradClause{names(context->gradClause()->name())};
        break;
      case Grammar::RuleDeterministicClause: clause.body = DeterministicClause{}; break;
      case Grammar::RuleNormalizeClause:
        clause.body = NormalizeClause{name(context->normalizeClause()->name())};
        break;
      case Grammar::RulePrologueClause: {
        auto* c = context->prologueClause();
        clause.body = PrologueClause{name(c->name()), expr(c->expr())};
        break;
      }
      case Grammar::RuleWeightClause:
        clause.body = WeightClause{expr(context->weightClause()->expr())};
        break;
      case Grammar::RuleEpilogueClause:
        clause.body = EpilogueClause{expr(context->epilogueClause()->expr())};
        break;
      case Grammar::RuleBranchClause: clause.body = branch(context->branchClause()); break;
      case Grammar::RuleShardClause:
        clause.body = ShardClause{name(context->shardClause()->name())};
        break;
      case Grammar::RuleValuesClause: {
        auto* c = context->valuesClause();
        clause.body = ValuesClause{name(c->name()), expr(c->expr(0)), expr(c->expr(1))};
        break;
      }
      case Grammar::RuleGatherClause: clause.body = gather(context->gatherClause()); break;
      case Grammar::RuleQuantizeClause: clause.body = quantize(context->quantizeClause()); break;
      case Grammar::RuleFunctionClause: clause.body = function(context->functionClause()); break;
      default: return other(inner);
    }
    return clause;
  }

  static BranchClause branch(Grammar::BranchClauseContext* context) {
    BranchClause clause{name(context->name())};
    for (auto* input : context->branchInput())
      clause.inputs.push_back({name(input->name(0)), name(input->name(1))});
    return clause;
  }

  static GatherClause gather(Grammar::GatherClauseContext* context) {
    GatherClause clause{name(context->name(0))};
    if (context->name().size() > 1) clause.counts = name(context->name(1));
    return clause;
  }

  static std::vector<Name> names(const std::vector<Grammar::NameContext*>& contexts) {
    std::vector<Name> result;
    for (auto* context : contexts) result.push_back(name(context));
    return result;
  }

  DimsClause dims(Grammar::DimsClauseContext* context) {
    DimsClause clause;
    for (auto* entry : context->dimEntry()) {
      clause.entries.push_back({name(entry->name()), optional_expr(entry->expr()), {}});
      if (entry->dimSet()) clause.entries.back().set = exprs(entry->dimSet()->expr());
    }
    return clause;
  }

  LayoutClause layout(Grammar::LayoutClauseContext* context) {
    LayoutClause clause;
    for (auto* entry : context->layoutEntry()) {
      Grammar::LayoutWordContext* first = entry->layoutWord(0);
      Grammar::LayoutWordContext* kind =
          entry->layoutWord().size() > 1 ? entry->layoutWord(1) : first;
      LayoutEntry result{std::nullopt, name(kind->name()), {}};
      if (kind != first) result.tensor = name(first->name());
      for (auto* argument : kind->layoutArgument()) {
        result.arguments.push_back(layout_argument(argument));
      }
      if (kind == first && context->layoutEntry().size() > 1) {
        const std::string text = entry->getText();
        const bool is_tensor = text == "q" || text == "k" || text == "v" || text == "o";
        sink_
            .report(Code::syntax, span_of(entry),
                    is_tensor ? "every tensor in a list needs a layout"
                              : "every layout in a list needs a tensor")
            .help =
            is_tensor ? fmt::format("write `{}: bshd`", text) : fmt::format("write `q: {}`", text);
        failed_ = true;
      }
      clause.entries.push_back(std::move(result));
    }
    return clause;
  }

  TensorClause tensor(Grammar::TensorClauseContext* context) {
    TensorClause clause{name(context->name(0)), name(context->name(1)), {}};
    for (Grammar::FactContext* fact : context->fact()) {
      clause.facts.push_back({name(fact->name()), exprs(fact->expr())});
    }
    clause.extents = exprs(context->expr());
    clause.fallback = optional_fallback(context->fallback());
    return clause;
  }

  std::optional<Expr> optional_fallback(Grammar::FallbackContext* context) {
    if (!context) return std::nullopt;
    return fallback(context);
  }

  Expr fallback(Grammar::FallbackContext* context) {
    if (context->expr()) return expr(context->expr());
    std::vector<Expr> elements;
    for (auto* element : context->elements()->fallback()) elements.push_back(fallback(element));
    Expr list = make(ExprKind::list, span_of(context->getStart()), "", {}, std::move(elements));
    list.span = span_of(context);
    return list;
  }

  LayoutArgument layout_argument(Grammar::LayoutArgumentContext* context) {
    if (context->expr().size() == 1) return {std::nullopt, expr(context->expr(0))};
    const Expr key = expr(context->expr(0));
    if (key.kind != ExprKind::name) {
      sink_.report(Code::syntax, key.span, "expected an argument name").help =
          "for example `paged(page = 64)`";
      failed_ = true;
    }
    return {Name{key.text, key.span}, expr(context->expr(1))};
  }

  LengthsClause lengths(Grammar::LengthsClauseContext* context) {
    LengthsClause clause;
    for (auto* entry : context->lengthsEntry()) {
      clause.entries.push_back({name(entry->name()), optional_fallback(entry->fallback())});
    }
    return clause;
  }

  static DtypeClause dtype(Grammar::DtypeClauseContext* context) {
    DtypeClause clause{name(context->name())};
    for (auto* entry : context->dtypeEntry())
      clause.entries.push_back({name(entry->name(0)), name(entry->name(1))});
    return clause;
  }

  QuantizeClause quantize(Grammar::QuantizeClauseContext* context) {
    QuantizeClause clause{name(context->name(0))};
    if (context->name().size() > 1) clause.of = name(context->name(1));
    for (auto* entry : context->quantizeEntry()) {
      QuantizeEntry& added = clause.entries.emplace_back(QuantizeEntry{name(entry->name(0))});
      if (entry->fallback() != nullptr) {
        added.fallback = fallback(entry->fallback());
      } else {
        added.dtype = name(entry->name(1));
      }
    }
    return clause;
  }

  FunctionClause function(Grammar::FunctionClauseContext* context) {
    FunctionClause clause;
    clause.name = name(context->name());
    for (auto* parameter : context->functionParameter()) {
      clause.parameters.push_back(name(parameter->name()));
    }
    for (auto* binding : context->binding()) {
      clause.lets.push_back({name(binding->name()), expr(binding->expr())});
    }
    clause.value = expr(context->expr());
    return clause;
  }

  std::vector<Expr> exprs(const std::vector<Grammar::ExprContext*>& contexts) {
    std::vector<Expr> result;
    for (auto* context : contexts) result.push_back(expr(context));
    return result;
  }

  std::optional<Expr> optional_expr(Grammar::ExprContext* context) {
    if (!context) return std::nullopt;
    return expr(context);
  }

  // A precedence level with one child is that child.
  Expr expr(ParserRuleContext* context) {
    while (context->getRuleIndex() != Grammar::RuleOperand && context->children.size() == 1) {
      context = dynamic_cast<ParserRuleContext*>(context->children[0]);
    }
    switch (context->getRuleIndex()) {
      case Grammar::RuleOperand: return operand(dynamic_cast<Grammar::OperandContext*>(context));
      case Grammar::RulePower: return power(context);
      case Grammar::RuleComparison: return comparison(context);
      default: return left_chain(context);
    }
  }

  Expr left_chain(ParserRuleContext* context) {
    Expr left = child(context, 0);
    for (std::size_t i = 1; i + 1 < context->children.size() && !failed_; i += 2) {
      std::vector<Expr> operands;
      operands.push_back(std::move(left));
      operands.push_back(child(context, i + 1));
      const antlr4::Token* token = terminal(context, i);
      left = make(ExprKind::binary, span_of(token), "", {*parse_operator(token->getText(), 2)},
                  std::move(operands));
    }
    return left;
  }

  Expr comparison(ParserRuleContext* context) {
    std::vector<Operator> operators;
    std::vector<Expr> operands;
    for (std::size_t i = 0; i < context->children.size(); ++i) {
      if (i % 2 == 0) {
        operands.push_back(child(context, i));
      } else {
        operators.push_back(*parse_operator(terminal(context, i)->getText(), 2));
      }
    }
    return make(ExprKind::compare, span_of(terminal(context, 1)), "", std::move(operators),
                std::move(operands));
  }

  // prefix* operand ('**' prefix* operand)*, from the right.
  Expr power(ParserRuleContext* context) {
    std::size_t i = context->children.size() - 1;
    Expr right = child(context, i);
    while (i-- > 0 && !failed_) {
      if (auto* prefix = dynamic_cast<Grammar::PrefixContext*>(context->children[i])) {
        std::vector<Expr> operands;
        operands.push_back(std::move(right));
        right = make(ExprKind::unary, span_of(prefix), "", {*parse_operator(prefix->getText(), 1)},
                     std::move(operands));
      } else {
        const Span head = span_of(terminal(context, i));
        std::vector<Expr> operands;
        operands.push_back(child(context, --i));
        operands.push_back(std::move(right));
        right = make(ExprKind::binary, head, "", {Operator::pow}, std::move(operands));
      }
    }
    return right;
  }

  Expr operand(Grammar::OperandContext* context) {
    if (context->expr()) {
      Expr inner = expr(context->expr());
      inner.grouped = true;
      inner.span = span_of(context);
      return inner;
    }
    const Span head = span_of(context->getStart());
    const std::string text = context->getStart()->getText();
    Expr result;
    if (context->FLOAT_INF()) return infinity(context);
    if (auto* arguments = context->arguments()) {
      result = call(head, text, arguments);
    } else if (!context->indexes().empty()) {
      std::vector<Expr> operands;
      for (auto* indexes : context->indexes()) {
        for (auto* index : indexes->expr()) operands.push_back(expr(index));
      }
      result = make(ExprKind::index, head, text, {}, std::move(operands));
    } else if (context->NUMBER()) {
      result = make(ExprKind::number, head, text, {}, {});
    } else if (context->name()) {
      result = make(ExprKind::name, head, text, {}, {});
    } else {
      result = make(ExprKind::boolean, head, context->TRUE() ? "true" : "false", {}, {});
    }
    result.span = span_of(context);
    return result;
  }

  Expr call(Span head, const std::string& text, Grammar::ArgumentsContext* arguments) {
    std::vector<Expr> operands;
    for (auto* argument : arguments->argument()) {
      operands.push_back(expr(argument->expr()));
      Grammar::BoundedContext* bounded = argument->bounded();
      if (!bounded) continue;
      if (operands.size() == 1 && arguments->argument().size() == 1 &&
          operands[0].kind == ExprKind::name) {
        return reduction(head, text, std::move(operands[0]), bounded);
      }
      sink_.report(Code::syntax, span_of(argument), "a reduction has one variable and one range")
          .help = "for example `any(j in 0..8: blocks[j] == kv_idx // 64)`";
      failed_ = true;
    }
    return make(ExprKind::call, head, text, {}, std::move(operands));
  }

  Expr reduction(Span head, const std::string& text, Expr variable,
                 Grammar::BoundedContext* bounded) {
    std::vector<Expr> operands;
    operands.push_back(std::move(variable));
    for (auto* part : bounded->expr()) operands.push_back(expr(part));
    return make(ExprKind::reduce, head, text, {}, std::move(operands));
  }

  // float("-inf")
  Expr infinity(Grammar::OperandContext* context) {
    const Span span = span_of(context);
    Expr result = make(ExprKind::name, span, "inf", {}, {});
    if (context->getText().find('-') != std::string::npos) {
      std::vector<Expr> operands;
      operands.push_back(std::move(result));
      result = make(ExprKind::unary, span, "", {Operator::negate}, std::move(operands));
      result.grouped = true;
    }
    result.span = span;
    return result;
  }

  Expr child(ParserRuleContext* context, std::size_t i) {
    return expr(dynamic_cast<ParserRuleContext*>(context->children[i]));
  }

  static antlr4::Token* terminal(ParserRuleContext* context, std::size_t i) {
    return dynamic_cast<TerminalNode*>(context->children[i])->getSymbol();
  }

  Expr make(ExprKind kind, Span head, std::string text, std::vector<Operator> operators,
            std::vector<Expr> operands) {
    Expr result = make_expr(kind, head, std::move(text), std::move(operators), std::move(operands));
    if (result.depth <= kMaxDepth) return result;
    if (!failed_) {
      sink_
          .report(Code::too_deep, head,
                  fmt::format("the expression is more than {} operations deep", kMaxDepth))
          .help = "move part of the expression into a `let`";
    }
    failed_ = true;
    return make_expr(ExprKind::number, head, "0", {}, {});
  }

  diag::Sink& sink_;
  bool failed_ = false;
};

}  // namespace

Span span_of(const antlr4::Token* token) {
  if (token->getType() == antlr4::Token::EOF) {
    const auto end = static_cast<std::uint32_t>(token->getStartIndex());
    return {end, end};
  }
  return {static_cast<std::uint32_t>(token->getStartIndex()),
          static_cast<std::uint32_t>(token->getStopIndex() + 1)};
}

Span span_of(ParserRuleContext* context) {
  return {span_of(context->getStart()).begin, span_of(context->getStop()).end};
}

std::optional<Spec> spec_of(Grammar::FileContext* file, diag::Sink& sink) {
  return Builder(sink).spec(file);
}

std::optional<Spec> incomplete_spec_of(Grammar::FileContext* file, diag::Sink& sink) {
  return Builder(sink).incomplete(file);
}

std::uint32_t end_of_header(Grammar::FileContext* file) {
  if (!file->attention()) return 0;
  for (ParseTree* child : file->attention()->children) {
    auto* leaf = dynamic_cast<TerminalNode*>(child);
    if (leaf && leaf->getText() == "{") return span_of(leaf->getSymbol()).end;
  }
  return span_of(file).begin;
}

}  // namespace attn::ast
