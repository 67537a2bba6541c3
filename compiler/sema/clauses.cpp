#include "compiler/sema/clauses.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/ir/block_scales.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/sema/constants.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Type;
using support::quoted;

constexpr std::string_view kLse = "lse";

constexpr Site kSinkSite{
    "the sink", kHeads | kTensors | kLearned | kParams,
    "a sink is one number for each batch and head: it may depend on `b`, `h`, params, "
    "constants, and tensors indexed by these"};
constexpr Site kKeepSite{"the keep condition of dropout", kIndexes | kTensors | kParams};
void add_length(std::string_view name, const ast::Name& at, ir::Attention& attention,
                Scope& scope) {
  if (attention.find_tensor(name)) return;
  ir::Dag& dag = attention.dag;
  const auto batches = attention.dims.get(ir::Dim::B);
  const ir::ExprId extent = batches ? dag.integer(*batches) : dag.dim("B");
  attention.tensors.push_back({std::string(name), DType::i32, {extent}, {}});
  scope.declare({std::string(name), at.span}, {.kind = Symbol::Kind::tensor, .dtype = DType::i32},
                false);
}

ir::SourcePos place(const diag::Sink& sink, support::Span span) {
  const support::Place at = sink.source().place(span.begin);
  return {at.line, at.column};
}

}  // namespace

void add_lengths(const ast::LengthsClause* clause, const ast::Name& spec_name,
                 ir::Attention& attention, Scope& scope, diag::Sink& sink) {
  for (const ast::LengthsEntry& entry :
       clause ? clause->entries : std::vector<ast::LengthsEntry>{}) {
    const bool q = entry.side.text == "q";
    if (!q && entry.side.text != "kv") {
      sink.report(Code::bad_choice, entry.side.span,
                  fmt::format("{} has no lengths", quoted(entry.side.text)))
          .help = "expected `q` or `kv`";
      continue;
    }
    bool& given = q ? attention.lengths_q : attention.lengths_kv;
    if (given) {
      sink.report(Code::duplicate_name, entry.side.span,
                  fmt::format("{} is listed twice", quoted(entry.side.text)));
    }
    given = true;
    add_length(q ? ir::kLengthsQ : ir::kLengthsKv, entry.side, attention, scope);
  }
  const auto is_thd = [&attention](std::string_view tensor) {
    return attention.layouts.find(tensor)->second.kind == ir::LayoutKind::thd;
  };
  if (!attention.lengths_q && (is_thd("q") || is_thd("o"))) {
    attention.lengths_q = true;
    add_length(ir::kLengthsQ, spec_name, attention, scope);
  }
  if (!attention.lengths_kv && (is_thd("k") || is_thd("v"))) {
    attention.lengths_kv = true;
    add_length(ir::kLengthsKv, spec_name, attention, scope);
  }
}

void add_length_defaults(const ast::LengthsClause& clause,
                         const std::set<std::string, std::less<>>& replaced,
                         ir::Attention& attention, Scope& scope) {
  for (const ast::LengthsEntry& entry : clause.entries) {
    if (!entry.fallback) continue;
    const std::string_view name = entry.side.text == "q" ? ir::kLengthsQ : ir::kLengthsKv;
    const auto tensor = std::ranges::find(attention.tensors, name, &ir::CapturedTensor::name);
    if (tensor == attention.tensors.end()) continue;  // reported
    const auto value = scope.check_default(*entry.fallback, kDefaultSite, tensor->extents,
                                           replaced.contains(name));
    if (value && scope.has_type(*entry.fallback, *value, Type::integer, kDefaultSite)) {
      tensor->fallback = value->id;
    }
  }
}

void set_align(const ast::AlignClause& clause, ir::Attention& attention, diag::Sink& sink) {
  const ast::Name& align = clause.align;
  const std::string_view words[] = {to_string(ir::Align::top_left),
                                    to_string(ir::Align::bottom_right)};
  if (!contains(words, align.text)) {
    auto& diagnostic = sink.report(Code::bad_choice, align.span,
                                   fmt::format("{} is not an alignment", quoted(align.text)));
    expect_one_of(words, align.text, diagnostic, align.span);
  }
  if (align.text == words[1]) attention.align = ir::Align::bottom_right;
}

void set_shard(const ast::ShardClause& clause, ir::Attention& attention, diag::Sink& sink) {
  attention.shard = ir::parse_shard(clause.axis.text);
  if (attention.shard) return;
  auto& diagnostic = sink.report(Code::bad_choice, clause.axis.span,
                                 fmt::format("{} cannot be sharded", quoted(clause.axis.text)));
  expect_one_of(ir::kShardNames, clause.axis.text, diagnostic, clause.axis.span);
}

namespace {

// Whether the output may be listed here.
bool fits(const ast::Name& name, const ir::Output& output, OutputsOf spec,
          const ir::Attention& attention, diag::Sink& sink) {
  if (attention.*output.wanted) {
    sink.report(Code::duplicate_name, name.span,
                fmt::format("{} is listed twice", quoted(name.text)));
  }
  if (ir::is_amax(output.name) && !spec.quantize) {
    sink.report(Code::bad_choice, name.span,
                fmt::format("{} needs a `quantize` clause", quoted(name.text)))
        .help = "only 8-bit tensors need it: remove it from `outputs`";
    return false;
  }
  if (output.name == "o_inner" && !spec.epilogue) {
    sink.report(Code::bad_choice, name.span, "`o_inner` needs an `epilogue` clause").help =
        "it is `o` before the epilogue: without one, use `o`";
    return false;
  }
  if (spec.sink || !ir::needs_sink(output.name)) return true;
  auto& diagnostic = sink.report(Code::bad_choice, name.span,
                                 fmt::format("{} needs a `sink` clause", quoted(name.text)));
  const std::string_view without = output.name.substr(0, output.name.find("_with"));
  diagnostic.help = fmt::format("without a sink, use {}", quoted(without));
  diagnostic.add_replacement(name.span, without);
  return false;
}

}  // namespace

namespace {

std::vector<std::string_view> output_names() {
  std::vector<std::string_view> names;
  for (const ir::Output& output : ir::kOutputs) names.push_back(output.name);
  return names;
}

std::vector<std::string_view> names_with_gradients(const ir::Attention& attention) {
  std::vector<std::string_view> names(input_names().begin(), input_names().end());
  names.push_back(kLse);
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (tensor.learned) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace

void set_outputs(const ast::OutputsClause& clause, OutputsOf spec, ir::Attention& attention,
                 diag::Sink& sink) {
  attention.wants_o = false;
  for (const ast::Name& name : clause.outputs) {
    const auto* output = std::ranges::find(ir::kOutputs, name.text, &ir::Output::name);
    if (output == std::end(ir::kOutputs)) {
      auto& diagnostic = sink.report(Code::bad_choice, name.span,
                                     fmt::format("{} is not an output", quoted(name.text)));
      const std::vector<std::string_view> names = output_names();
      if (!name.text.starts_with("amax")) {
        output_suggestion(name.text, names).put(diagnostic, name.span);
      }
      if (!diagnostic.help.empty()) continue;
      diagnostic.help =
          "expected `o`, `lse`, `max` or `sum_exp`, or with a sink also `max_with_sink`, "
          "`sum_exp_with_sink` or `lse_without_sink`, or with `quantize` also `amax_s` or "
          "`amax_o`, "
          "or with an epilogue also `o_inner`";
      continue;
    }
    if (!fits(name, *output, spec, attention, sink)) continue;
    const bool is_first = !attention.wants_more_than_lse();
    attention.*output->wanted = true;
    if (is_first && attention.wants_more_than_lse()) {
      attention.statistics_pos = place(sink, name.span);
    }
  }
}

namespace {

// Whether `quantize` declared the tensor.
bool is_of_quantize(std::string_view name, const ir::Attention& attention) {
  if (attention.cache) return ir::is_cache_scale(name);
  if (!attention.quantize) return false;
  return ir::is_scale(name) || (attention.is_mxfp8() && ir::find_copy(name) != nullptr);
}

}  // namespace

namespace {

void report_twice(const ast::Name& name, diag::Sink& sink) {
  sink.report(Code::duplicate_name, name.span,
              fmt::format("{} is listed twice", quoted(name.text)));
}

// `lse` among the gradients: that of the loss by lse is given, and goes on to the others.
void set_gradient_of_lse(const ast::Name& name, ir::Attention& attention, diag::Sink& sink) {
  if (attention.reads_d_lse) return report_twice(name, sink);
  if (attention.quantize) {
    sink.report(Code::not_available_here, name.span,
                "8-bit attention has no gradients through lse: no scale is declared for them")
        .help = "leave `lse` out, or use `dtype bf16;` without `quantize`";
    return;
  }
  attention.reads_d_lse = true;
  attention.d_lse_pos = place(sink, name.span);
}

// Whether the name is of an output without a gradient, and why it has none.
bool is_other_output(const ast::Name& name, diag::Sink& sink) {
  const auto* output = std::ranges::find(ir::kOutputs, name.text, &ir::Output::name);
  if (output == std::end(ir::kOutputs)) return false;
  auto& diagnostic =
      sink.report(Code::bad_choice, name.span,
                  name.text == "o" ? "`o` always has a gradient, which the backward reads as `do`"
                                   : fmt::format("{} has no gradient", quoted(name.text)));
  diagnostic.help = name.text == "o"         ? "list the inputs alone, as in `grad q, k, v;`"
                    : name.text == "o_inner" ? "gradients come to `o`, and go through the epilogue"
                    : ir::is_amax(name.text)
                        ? "it is a magnitude for the scales of a later call"
                        : "of the statistics only `lse` has one, from which others may be computed";
  return true;
}

}  // namespace

void set_gradients(const ast::GradClause& clause, ir::Attention& attention, diag::Sink& sink) {
  for (const ast::Name& name : clause.tensors) {
    if (name.text == kLse) {
      if (!attention.is_pointwise()) set_gradient_of_lse(name, attention, sink);
      continue;
    }
    if (is_other_output(name, sink)) continue;
    const ir::CapturedTensor* tensor = attention.find_tensor(name.text);
    if (attention.find_sum(name.text) != nullptr) {
      sink.report(Code::bad_choice, name.span,
                  fmt::format("{} is summed along keys, and its gradient is not an output",
                              quoted(name.text)))
          .help = "list the learned tensors that it sums";
      continue;
    }
    if (!contains(input_names(), name.text) && !(tensor && tensor->learned)) {
      auto& diagnostic = sink.report(Code::bad_choice, name.span,
                                     fmt::format("{} has no gradient", quoted(name.text)));
      if (tensor && !is_of_quantize(name.text, attention)) {
        diagnostic.help = fmt::format("declare it with `learn {}: ...`", name.text);
        continue;
      }
      const std::string_view close = support::nearest(name.text, names_with_gradients(attention));
      did_you_mean(tensor ? "" : close).put(diagnostic, name.span);
      if (!diagnostic.help.empty()) continue;
      diagnostic.help =
          "expected `q`, `k`, `v` or a tensor declared with `learn`, and perhaps `lse` beside them";
      continue;
    }
    if (std::ranges::find(attention.gradients, name.text) != attention.gradients.end()) {
      report_twice(name, sink);
      continue;
    }
    attention.gradients.push_back(name.text);
  }
  if (!attention.reads_d_lse || clause.tensors.size() > 1) return;
  const ast::Name& alone = clause.tensors.front();
  auto& diagnostic = sink.report(Code::bad_choice, alone.span,
                                 "gradients go through `lse` to inputs, and none is listed");
  diagnostic.help = "list them beside it: `grad q, k, v, lse;`";
  diagnostic.add_replacement(alone.span, "q, k, v, lse");
}

namespace {

bool reads(const ast::Expr& expr, std::string_view name) {
  return (expr.kind == ast::ExprKind::name && expr.text == name) ||
         std::ranges::any_of(expr.operands,
                             [&](const ast::Expr& operand) { return reads(operand, name); });
}

// The condition that the expression is, or that it chooses by, as an operand of `||`.
std::string seen_keys(const ast::Expr& expr) {
  const bool is_choice =
      expr.kind == ast::ExprKind::call && expr.text == "where" && expr.operands.size() == 3;
  if (is_choice) return seen_keys(expr.operands[0]);
  const bool is_comparison = expr.kind == ast::ExprKind::compare;
  const bool joins =
      expr.kind == ast::ExprKind::binary &&
      ast::precedence(expr.operators[0]) <= ast::precedence(ast::Operator::logical_and);
  if (is_comparison) return ast::to_dsl(expr);
  return joins ? fmt::format("({})", ast::to_dsl(expr)) : "kv_idx < 4";
}

}  // namespace

void set_sink(const ast::SinkClause& clause, ir::Attention& attention, Scope& scope) {
  Site site = kSinkSite;
  std::string keys;
  if (reads(clause.value, "kv_idx")) {
    keys = fmt::format(
        "keys that every query sees are a term of the mask: `mask q_idx >= kv_idx && "
        "(q_idx - kv_idx < 128 || {});`; this clause is the score of one more key, "
        "without a value",
        seen_keys(clause.value));
    site.help = keys;
  }
  const auto value = scope.check_as(clause.value, site, Type::real, "");
  if (value) attention.sink = value->id;
}

void set_dropout(const ast::Clause& clause, ir::Attention& attention, Environment& environment,
                 Scope& scope, diag::Sink& sink) {
  const auto& dropout = std::get<ast::DropoutClause>(clause.body);
  const auto lookup = [&](const std::string& name, support::Span span) {
    return environment.lookup(name, span, sink);
  };
  const Known known = evaluate(dropout.probability, lookup, sink);
  if (known.state == Known::State::open) {
    sink.report(Code::bad_value, dropout.probability.span,
                "the dropout probability cannot depend on open dimensions");
  }
  if (known.state != Known::State::value) return;
  const double p = std::visit([](auto value) { return static_cast<double>(value); }, known.number);
  if (!(p >= 0 && p < 1)) {
    sink.report(Code::bad_value, dropout.probability.span,
                fmt::format("the dropout probability is {}", p))
        .help = "it must be at least 0 and less than 1";
    return;
  }
  ir::Dropout result{p, std::nullopt, place(sink, clause.span)};
  if (dropout.keep) {
    const auto keep =
        scope.check_as(*dropout.keep, kKeepSite, Type::boolean, "compare, for example `!= 0`");
    if (!keep) return;
    result.keep = keep->id;
  }
  attention.dropout = result;
}

}  // namespace attn::sema
