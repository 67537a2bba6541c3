#include "compiler/engines/cudnn/fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/cudnn/backward.h"
#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/cudnn/lower.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/no_keys.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/rewrite/pass.h"
#include "compiler/target/capabilities.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

bool is_cudnn(const plan::Step& step) { return std::holds_alternative<plan::CudnnStep>(step); }

void make_copy(const ir::Attention& attention, const char* tensor, const std::string& copy,
               codegen::KernelText& kernel) {
  const Dims4 dims = page_table_dims(attention, tensor);
  const std::int64_t page = layout_of(attention, tensor).page;
  const std::string table = kernel.read(page_table_name(attention, tensor), DType::i32);
  const std::string lengths = kernel.read(std::string(ir::kLengthsKv), DType::i32);
  kernel.make(copy, DType::i32, dims[0] * dims[2], "pages that hold keys of the sequence",
              fmt::format("const int n = i, entry = n % {0};\n"
                          "    const int last = ({1}[n / {0}] + {2}) / {3} - 1;\n"
                          "    out[n] = last < 0 ? 0 : {4}[entry <= last ? n : n - entry + last];",
                          dims[2], lengths, page - 1, page, table));
}

// Errors: unsupported, where results would depend on values past Skv.
Status check_paged_keys(const ir::Attention& attention, const target::Context& context) {
  constexpr std::int64_t kKeysOfTile = 128;
  const std::int64_t keys = attention.dims[ir::Dim::Skv];
  const bool may_be_nan = layout_of(attention, "v").kind == ir::LayoutKind::paged &&
                          attention.dims[ir::Dim::Sq] > 1 && keys % kKeysOfTile != 0;
  if (!may_be_nan || can(target::Capability::pages_of_any_number_of_keys, context)) return {};
  return unsupported(
      attention.pos,
      fmt::format("with pages and several rows, cuDNN's o is NaN where values past Skv are, "
                  "unless Skv is a multiple of {} (this is {})",
                  kKeysOfTile, keys),
      fmt::format("let Skv be {}: lengths say how many keys there are",
                  ceil_div(keys, kKeysOfTile) * kKeysOfTile));
}

// Lets the cuDNN step of a program read copies of the page tables that the caller binds, in which
// entries past a sequence's last key repeat its last page (page 0 if it has no keys), because the
// caller's may be any numbers. Nothing without lengths of keys: then all entries are in use.
// Returns the predicted milliseconds of the copying.
double keep_to_own_pages(const ir::Attention& attention, plan::Program& program,
                         const target::Gpu& gpu) {
  if (!has_column_lengths(attention)) return 0;
  double bytes = 0;
  std::map<std::string, std::string> copies;
  codegen::KernelText kernel;
  for (const char* tensor : {"k", "v"}) {
    if (layout_of(attention, tensor).kind != ir::LayoutKind::paged) continue;
    const std::string table = page_table_name(attention, tensor), copy = table + ".own";
    if (!copies.emplace(table, copy).second) continue;  // k and v share it
    const Dims4 dims = page_table_dims(attention, tensor);
    program.internals.push_back(plan::internal_tensor(copy, DType::i32, {dims[0], dims[2]}));
    make_copy(attention, tensor, copy, kernel);
    bytes += 2.0 * sizeof(std::int32_t) * static_cast<double>(dims[0] * dims[2]);
  }
  if (copies.empty()) return 0;
  for (plan::Step& step : program.steps) {
    if (!is_cudnn(step)) continue;
    plan::change_tensors(step, [&copies](plan::TensorOperand& tensor) {
      if (const auto copy = copies.find(tensor.name); copy != copies.end())
        tensor.name = copy->second;
    });
  }
  program.steps.insert(std::ranges::find_if(program.steps, is_cudnn),
                       std::move(kernel).finish(false));
  return predicted_ms_of_moving(bytes, gpu);
}

using Hoist = Result<rewrite::Hoisted> (*)(const ir::Attention& attention,
                                           std::vector<ir::ExprId> extra,
                                           const target::Context& context);

Error without_vectors(const ir::Attention& attention) {
  return unsupported(attention.pos, "no tensor over the rows is read: tables do not help");
}

// Hoists tables instead of vectors over the rows. Errors: unsupported where there are no vectors.
Result<rewrite::Hoisted> with_tables(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                     const target::Context& context) {
  ATTN_ASSIGN(const rewrite::Hoisted vectors, hoisted(attention, extra, context, true));
  ATTN_ASSIGN(rewrite::Hoisted tables, hoisted(attention, std::move(extra), context, false));
  if (!ir::is_same(tables.attention, vectors.attention)) return tables;
  return without_vectors(attention);
}

Result<rewrite::Hoisted> with_vectors(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                      const target::Context& context) {
  return hoisted(attention, std::move(extra), context, true);
}

Status check(const ir::Attention& attention, const target::Context& context) {
  if (!context.backward()) return check_forward(attention);
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  return check_gradients(attention);
}

Coverage coverage(Subject& subject) {
  const ir::Attention& form = subject.form();
  return coverage_of_fused(form, masks::analyzed(form, subject.context())->form());
}

Result<Lowered> forward(Subject& subject, Core core, Hoist hoist) {
  const ir::Attention& form = subject.form();
  ATTN_RETURN_IF_ERROR(check_paged_keys(form, subject.context()));
  ATTN_ASSIGN(const rewrite::Hoisted parts, hoist(form, {}, subject.context()));
  ATTN_ASSIGN(plan::Program program, lower(parts.attention, subject.context(), core));
  double of_pages = 0;
  if (!can(target::Capability::ignores_pages_past_lengths, subject.context()))
    of_pages = keep_to_own_pages(parts.attention, program, subject.context().gpu);
  program = codegen::with_derived(form, parts, std::move(program));
  if (const rewrite::Cancelled* cancelled = subject.cancelled()) {
    program = codegen::with_cancelled(*cancelled, std::move(program));
  }
  Lowered lowered{std::move(program), subject.predicted_ms_of_form() + of_pages +
                                          predicted_ms_of_deriving(parts, subject.context().gpu)};
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
  if (attention.dims[ir::Dim::Skv] == 0) return no_keys_backward(attention);
  const std::vector<std::string> gradients = gradient_names(attention);
  const std::set<std::string> wanted = operand_gradients(gradients);
  if (wanted.empty()) return lower_backward_by_products(attention, score_bytes);
  const gradient::Derivatives derivatives = rewrite::run_pass(
      "differentiate", subject.context(), [&] { return gradient::differentiate(subject.form()); });
  LearnedGradients learned;
  if (!derivatives.tensors.empty()) {
    ATTN_ASSIGN(learned, learned_gradients(derivatives, score_bytes));
  }
  ATTN_ASSIGN(const rewrite::Hoisted parts,
              hoist(derivatives.attention, {derivatives.score}, subject.context()));
  predicted_ms += predicted_ms_of_deriving(parts, subject.context().gpu);
  const BackwardParts backward{parts.attention, parts.extra.front(), wanted};
  ATTN_ASSIGN(plan::Program program,
              lower_backward(backward, gradients, std::move(learned), subject.context()));
  return codegen::with_derived(derivatives.attention, parts, std::move(program));
}

Result<double> bound_of_fused(Subject& subject) {
  // What lowering says about open dimensions is the error.
  if (!subject.attention().dims.bound() && !subject.context().backward()) {
    return lower(subject.attention(), subject.context()).error();
  }
  ATTN_RETURN_IF_ERROR(check(subject.attention(), subject.context()));
  return subject.predicted_ms_of_form();
}

Result<Lowered> lower_fused(Subject& subject, Core core, Hoist hoist) {
  ATTN_RETURN_IF_ERROR(bound_of_fused(subject).status());
  if (!subject.context().backward()) return forward(subject, core, hoist);
  double predicted_ms = subject.predicted_ms_of_form();
  ATTN_ASSIGN(plan::Program program, fused_backward(subject, hoist, predicted_ms));
  return Lowered{std::move(program), predicted_ms};
}

}  // namespace

Result<Lowered> fused(Subject& subject) { return lower_fused(subject, composite, with_vectors); }

Result<Lowered> fused(const ir::Attention& attention, const target::Context& context,
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
      !can(target::Capability::unified_backward, subject.context())) {
    return unsupported(subject.attention().pos, "cuDNN has no backward as one node that builds");
  }
  return bound_of_fused(subject);
}
Result<Lowered> unified::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  return lower_fused(subject, engines::unified, with_vectors);
}

Result<double> tables::bound(Subject& subject) { return bound_of_fused(subject); }
Result<Lowered> tables::lower(Subject& subject) {
  return lower_fused(subject, engines::composite, with_tables);
}

}  // namespace strategy

}  // namespace attn::engines
