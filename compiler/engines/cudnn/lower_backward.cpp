#include "compiler/engines/cudnn/lower_backward.h"

#include <fmt/format.h>

#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/cudnn/keyless.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/capabilities.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines {
namespace {

using ir::Dim;

Status check_layouts(const ir::Attention& attention, const target::Context& context) {
  if (can(target::Capability::backward_of_pages, context)) return {};
  for (const char* name : {"k", "v"}) {
    if (layout_of(attention, name).kind != ir::LayoutKind::paged) continue;
    return unsupported(
        attention.pos,
        fmt::format("cuDNN's backward does not support pages, and `{}` is paged", name));
  }
  return {};
}

class BackwardMaker {
 public:
  BackwardMaker(const BackwardParts& parts, const masks::MaskForm& form)
      : parts_(parts), attention_(parts.attention), form_(form), dims_(attention_.dims) {}

  Result<plan::Program> make(const std::vector<std::string>& gradients,
                             LearnedGradients learned) && {
    ATTN_ASSIGN(plan::CudnnStep core, backward(parts_, form_));
    add_unwanted();
    const std::vector<std::string> outputs(parts_.wanted.begin(), parts_.wanted.end());
    ATTN_ASSIGN(Staging staged, staging(attention_, {"q", "k", "v", "o", "do"}, outputs));
    add_internals();
    std::vector<plan::Step> steps;
    move_to(steps, staged.before);
    if (reads_own_lse(attention_, form_)) steps.emplace_back(read_lse());
    std::set<std::string> used = names_of(core);
    steps.emplace_back(std::move(core));
    move_to(steps, staged.after);
    if (auto zeros = keyless_backward(attention_, outputs)) steps.emplace_back(std::move(*zeros));
    move_to(steps, learned.steps);
    used.merge(names_read(steps));
    bind(used, gradients);
    move_to(program_.internals, staged.internals);
    move_to(program_.internals, learned.internals);
    move_to(program_.steps, steps);
    return std::move(program_);
  }

 private:
  template <typename To, typename From>
  static void move_to(std::vector<To>& to, std::vector<From>& from) {
    for (From& each : from) to.emplace_back(std::move(each));
  }

  void bind(const std::set<std::string>& used, const std::vector<std::string>& gradients) {
    Controls made = controls(attention_, used);
    program_.tensors = backward_tensors(attention_, used, made, gradients);
    move_to(program_.internals, made.internals);
    move_to(program_.steps, made.steps);
    for (const ir::Param& param : attention_.params) {
      if (used.contains(param.name)) program_.params.push_back({param.name, param.dtype});
    }
  }

  // The engine writes all three.
  void add_unwanted() {
    for (const char* name : {"dq", "dk", "dv"}) {
      if (parts_.wanted.contains(name)) continue;
      program_.internals.push_back(staged_info(attention_, name));
    }
  }

  void add_internal(const char* name, std::vector<std::int64_t> dims) {
    program_.internals.push_back(plan::internal_tensor(name, DType::f32, std::move(dims)));
  }

  void add_internals() {
    const std::vector<std::int64_t> rows = {dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq]};
    if (!attention_.quantize) add_internal(kDelta, rows);
    if (reads_own_lse(attention_, form_)) add_internal(kLse, rows);
    if (attention_.deterministic || attention_.quantize) return;
    const Dims4 sum = staged_dims(attention_, "dq");
    add_internal(kQuerySum, {sum.begin(), sum.end()});
  }

  // [B,Hq,Sq], inf where the row is past the lengths or has no weights.
  plan::DeriveStep read_lse() const {
    codegen::KernelText kernel;
    const std::int64_t heads = dims_[Dim::Hq], rows = dims_[Dim::Sq];
    const Dims4 strides = statistics_strides(attention_);
    const std::string lse = kernel.read("lse", DType::f32);
    std::string begin = fmt::format("b * {}LL", strides[0]), present = "true";
    if (const std::string starts = addressed_by(attention_, "lse"); !starts.empty()) {
      const std::string cu = kernel.read(starts, DType::i32);
      begin = fmt::format("{}[b] * {}LL", cu, strides[2]);
      present = fmt::format("s < {0}[b + 1] - {0}[b]", cu);
    } else if (has_row_lengths(attention_)) {
      present = fmt::format("s < {}[b]", kernel.read(std::string(ir::kLengthsQ), DType::i32));
    }
    kernel.make(kLse, DType::f32, dims_[Dim::B] * heads * rows, "lse, or inf",
                fmt::format("const long long s = i % {0}, h = i / {0} % {1}, b = i / {0} / {1};\n"
                            "    const float inf = 1.0 / 0.0;\n"
                            "    const float x = {2} ? {3}[{4} + h * {5}LL + s * {6}LL] : inf;\n"
                            "    out[i] = x == -inf ? inf : x;",
                            rows, heads, present, lse, begin, strides[1], strides[2]));
    return std::move(kernel).finish(false);
  }

  const BackwardParts& parts_;
  const ir::Attention& attention_;
  const masks::MaskForm& form_;
  const ir::Dims& dims_;
  plan::Program program_;
};

}  // namespace

Result<plan::Program> lower_backward(const BackwardParts& parts,
                                     const std::vector<std::string>& gradients,
                                     LearnedGradients learned, const target::Context& context) {
  ATTN_RETURN_IF_ERROR(check_layouts(parts.attention, context));
  const masks::Analyzed mask = masks::analyzed(parts.attention, context);
  ATTN_RETURN_IF_ERROR(check_quantized_backward(parts.attention, mask->form(), context));
  ATTN_ASSIGN(plan::Program program,
              BackwardMaker(parts, mask->form()).make(gradients, std::move(learned)));
  ATTN_RETURN_IF_ERROR(check_program(parts.attention, program));
  return program;
}

}  // namespace attn::engines
