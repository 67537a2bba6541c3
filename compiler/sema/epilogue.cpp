#include "compiler/sema/epilogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace attn::sema {
namespace {

constexpr Site kEpilogueSite{
    "an epilogue", kHeads | kRows | kTensors | kLearned | kParams | kResult | kColumn,
    "it acts on each element of `o`, after the sum over keys: it may read `o`, `b`, `h`, `q_idx`, "
    "`d_idx` (the element's column), tensors, params and constants"};

constexpr Site kCombineSite{
    "what branches become", kHeads | kRows | kTensors | kLearned | kParams | kBranch | kColumn,
    "it is of each element of `o`, after the sums over keys: it may read branches by their names, "
    "`b`, `h`, `q_idx`, `d_idx` (the element's column), tensors, params and constants"};

}  // namespace

const ast::Clause* find_epilogue(const ast::Spec& spec) {
  const auto found = std::ranges::find_if(spec.clauses, [](const ast::Clause& clause) {
    return std::holds_alternative<ast::EpilogueClause>(clause.body);
  });
  return found == spec.clauses.end() ? nullptr : &*found;
}

void add_epilogue(const ast::Clause& clause, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink) {
  const std::string& word = clause.keyword.text;
  const auto value = scope.check_as(std::get<ast::EpilogueClause>(clause.body).value,
                                    word == "combine" ? kCombineSite : kEpilogueSite,
                                    ir::Type::real, "choose numbers by `where(condition, a, b)`");
  if (!value) return;
  if (is_fp8(attention.dtype)) {
    sink.report(diag::Code::not_available_here, clause.keyword.span,
                fmt::format("8-bit attention has no {}: `scale_o` and `amax_o` are of o as the "
                            "attention leaves it",
                            support::quoted(word)))
        .help = word == "combine"
                    ? "use `dtype bf16;` without `quantize`"
                    : "use `dtype bf16;` without `quantize`, or apply it to the result";
    return;
  }
  if (!attention.epilogue) {
    const support::Place at = sink.source().place(clause.keyword.span.begin);
    attention.epilogue_pos = {at.line, at.column};
  }
  scope.set_output(word == "gate" ? scope.gated(*value) : *value);
  attention.epilogue = scope.output().id;
}

}  // namespace attn::sema
