// Several attentions in one spec: the clauses `branch` and `combine`.
//
// A clause of scores or weights (kOfBranches) below `branch NAME` is of that branch, up to the next
// `branch` or `combine`; above the first, it is of all. All other clauses are of the whole spec,
// wherever they stand. So each branch is a spec of its own, which is analyzed as any other. The
// last one that reads q, k and v themselves is the attention of the IR, whose epilogue combines;
// the others are its ir::Branch.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/analyze.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// Whether the spec has a clause `branch` or `combine`.
bool has_branches(const ast::Spec& spec);

// The name of the branch that the spec's own attention is; empty if there is none.
std::string own_branch(const ast::Spec& spec);

// Names that one branch reads, so that they are not reported as unused by another.
struct NamesRead {
  std::set<std::string, std::less<>> names{};
  bool collects = false;  // of a branch; else names that are not among them are reported
};

// Analyzes a spec without `branch` clauses of other branches.
using AnalyzeOne = std::function<std::optional<ir::Attention>(
    const ast::Spec& spec, const Bindings& bindings, Spans* spans, NamesRead& read)>;

// Analyzes each branch, and what combines them. Returns nullopt after reporting errors.
std::optional<ir::Attention> analyze_branches(const ast::Spec& spec, const Bindings& bindings,
                                              diag::Sink& sink, Spans* spans,
                                              const AnalyzeOne& analyze);

}  // namespace attn::sema
