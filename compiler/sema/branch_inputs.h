// The tensors that a branch reads in place of q, k and v: `branch far: k = k_far, v = v_far;`. They
// are row-major, as all captured tensors are: [B, heads, queries or keys, D].
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/bindings.h"
#include "compiler/sema/environment.h"

namespace attn::sema {

// What a branch reads, by "q", "k" and "v".
struct GivenInputs {
  std::map<std::string, std::string, std::less<>> names;
  // Sizes of its k and v, where they have tensors of their own; absent: open.
  bool has_keys = false;
  std::optional<std::int64_t> keys, heads;
  bool counts_own_keys = false;  // unless there are proven to be as many as of k
};

class BranchInputs {
 public:
  // The references must outlive it.
  BranchInputs(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink);

  // What the clause gives; nullopt after reporting what does not fit.
  std::optional<GivenInputs> of(const ast::BranchClause& clause) const;

  // Makes the sizes of the branch those of its keys: in `dims`, of which bindings are no more. What
  // the whole spec declares keeps its sizes, and has no defaults or facts here.
  void apply(const GivenInputs& given, ast::Spec& part, Bindings& bindings) const;

 private:
  const ast::TensorClause* find(const ast::Name& name) const;
  std::optional<std::int64_t> size_of(const ast::Expr& extent) const;
  bool add(const ast::BranchInput& input, GivenInputs& given) const;
  bool fits(const ast::BranchInput& input, const ast::TensorClause& tensor) const;
  bool check_size(const ast::BranchInput& input, ir::Dim dim, const ast::Expr& extent) const;
  bool check_counts(const ast::BranchClause& clause, const GivenInputs& given) const;
  diag::Diagnostic& refuse_size(const ast::BranchInput& input, support::Span at,
                                std::string what) const;
  std::string declaration(const ast::BranchInput& input) const;
  std::string dtype() const;

  const ast::Spec& spec_;
  diag::Sink& sink_;
  Environment environment_;
};

}  // namespace attn::sema
