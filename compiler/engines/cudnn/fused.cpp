#include "compiler/engines/cudnn/fused.h"

#include <set>

#include "compiler/derive/steps.h"
#include "compiler/engines/cudnn/hoisting.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/interface.h"
#include "compiler/lowering/common/no_keys.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/lowering/cudnn/lower.h"
#include "compiler/lowering/cudnn/lower_backward.h"
#include "compiler/lowering/cudnn/unified.h"
#include "compiler/passes/rewrite/pass.h"
#include "compiler/passes/strategy/cost.h"
#include "compiler/planning/capabilities.h"

namespace attn::engines {
namespace {

using Hoist = Result<passes::Hoisted> (*)(const ir::Attention& attention,
                                          std::vector<ir::ExprId> extra,
                                          const planning::Context& context);

Error without_vectors(const ir::Attention& attention) {
  return lowering::unsupported(attention.pos,
                               "no tensor over the rows is read: tables do not help");
}

// Hoists tables instead of vectors over the rows. Errors: unsupported where there are no vectors.
Result<passes::Hoisted> with_tables(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                    const planning::Context& context) {
  ATTN_ASSIGN(const passes::Hoisted vectors, hoisted(attention, extra, context, true));
  ATTN_ASSIGN(passes::Hoisted tables, hoisted(attention, std::move(extra), context, false));
  if (ir::to_text(tables.attention) != ir::to_text(vectors.attention)) return tables;
  return without_vectors(attention);
}

Result<passes::Hoisted> with_vectors(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                     const planning::Context& context) {
  return hoisted(attention, std::move(extra), context, true);
}

Status check(const ir::Attention& attention, const planning::Context& context) {
  if (!context.backward()) return lowering::check_forward(attention);
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  return lowering::check_gradients(attention);
}

lowering::Coverage coverage(Subject& subject) {
  const ir::Attention& form = subject.form();
  return lowering::coverage_of_fused(form, passes::analyzed(form, subject.context())->form());
}

Result<Lowered> forward(Subject& subject, lowering::Core core, Hoist hoist) {
  const ir::Attention& form = subject.form();
  ATTN_ASSIGN(const passes::Hoisted parts, hoist(form, {}, subject.context()));
  ATTN_ASSIGN(plan::Program program, lowering::lower(parts.attention, subject.context(), core));
  program = derive::with_derived(form, parts, std::move(program));
  if (const passes::Cancelled* cancelled = subject.cancelled()) {
    program = derive::with_cancelled(*cancelled, std::move(program));
  }
  Lowered lowered{std::move(program),
                  subject.predicted_ms_of_form() +
                      passes::predicted_ms_of_deriving(parts, subject.context().gpu)};
  lowered.kernels = {coverage(subject)};
  return lowered;
}

// Gradients the fused kernel computes: dq, dk, dv.
std::set<std::string> operand_gradients(const std::vector<std::string>& gradients) {
  std::set<std::string> names;
  for (const std::string& name : gradients) {
    if (name == "dq" || name == "dk" || name == "dv") names.insert(name);
  }
  return names;
}

// Gets the predicted time of the form, and adds that of deriving its tensors.
Result<plan::Program> fused_backward(Subject& subject, Hoist hoist, double& predicted_ms) {
  const ir::Attention& attention = subject.attention();
  const std::int64_t score_bytes = subject.context().rewrites.score_bytes;
  if (attention.dims[ir::Dim::Skv] == 0) return lowering::no_keys_backward(attention);
  const std::vector<std::string> gradients = lowering::gradient_names(attention);
  const std::set<std::string> wanted = operand_gradients(gradients);
  if (wanted.empty()) return lowering::lower_unfused_backward(attention, score_bytes);
  const gradient::Derivatives derivatives = passes::run_pass(
      "differentiate", subject.context(), [&] { return gradient::differentiate(subject.form()); });
  lowering::LearnedGradients learned;
  if (!derivatives.tensors.empty()) {
    ATTN_ASSIGN(learned, lowering::learned_gradients(derivatives, score_bytes));
  }
  ATTN_ASSIGN(const passes::Hoisted parts,
              hoist(derivatives.attention, {derivatives.score}, subject.context()));
  predicted_ms += passes::predicted_ms_of_deriving(parts, subject.context().gpu);
  const lowering::BackwardParts backward{parts.attention, parts.extra.front(), wanted};
  ATTN_ASSIGN(plan::Program program,
              lowering::lower_backward(backward, gradients, std::move(learned), subject.context()));
  return derive::with_derived(derivatives.attention, parts, std::move(program));
}

Result<double> bound_of_fused(Subject& subject) {
  // What lowering says about open dimensions is the error.
  if (!subject.attention().dims.bound() && !subject.context().backward()) {
    return lowering::lower(subject.attention(), subject.context()).error();
  }
  ATTN_RETURN_IF_ERROR(check(subject.attention(), subject.context()));
  return subject.predicted_ms_of_form();
}

Result<Lowered> lower(Subject& subject, lowering::Core core, Hoist hoist) {
  ATTN_RETURN_IF_ERROR(bound_of_fused(subject).status());
  if (!subject.context().backward()) return forward(subject, core, hoist);
  double predicted_ms = subject.predicted_ms_of_form();
  ATTN_ASSIGN(plan::Program program, fused_backward(subject, hoist, predicted_ms));
  return Lowered{std::move(program), predicted_ms};
}

}  // namespace

Result<Lowered> fused(Subject& subject) {
  return lower(subject, lowering::composite, with_vectors);
}

Result<Lowered> fused(const ir::Attention& attention, const planning::Context& context,
                      double& deriving_ms) {
  Subject subject(attention, context);
  ATTN_ASSIGN(Lowered lowered, fused(subject));
  deriving_ms += lowered.predicted_ms - subject.predicted_ms_of_form();
  return lowered;
}

namespace strategy {

Result<double> composite::bound(Subject& subject) { return bound_of_fused(subject); }
Result<Lowered> composite::lower(Subject& subject) { return fused(subject); }

Result<double> unified::bound(Subject& subject) {
  if (subject.context().backward() &&
      !can(planning::Capability::unified_backward, subject.context())) {
    return lowering::unsupported(subject.attention().pos,
                                 "cuDNN has no backward as one node that builds");
  }
  return bound_of_fused(subject);
}
Result<Lowered> unified::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  return engines::lower(subject, lowering::unified, with_vectors);
}

Result<double> tables::bound(Subject& subject) { return bound_of_fused(subject); }
Result<Lowered> tables::lower(Subject& subject) {
  return engines::lower(subject, lowering::composite, with_tables);
}

}  // namespace strategy
}  // namespace attn::engines
