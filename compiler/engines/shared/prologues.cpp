#include "compiler/engines/shared/prologues.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/prologues.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/prologues.h"
#include "runtime/base/check.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using Role = plan::TensorRole;

class WithPrologues {
 public:
  WithPrologues(const ir::Attention& attention, plan::Program program)
      : attention_(attention),
        program_(std::move(program)),
        views_(ir::prologue_views(attention)) {}

  plan::Program run() && {
    const bool is_backward = plan::direction_of(program_) == plan::Direction::backward;
    std::vector<codegen::PrologueRows> rows;
    for (const ir::PrologueView& view : views_) {
      if (!make_internal(program_, view.tensor, made(view.tensor))) continue;
      restore(view.tensor, view.tensor == "q" ? Role::query : Role::key);
      rows.push_back({&view, strides(view.tensor), made(view.tensor)});
    }
    if (!rows.empty()) program_.steps.insert(program_.steps.begin(), codegen::prologues_step(rows));
    if (is_backward) add_gradients(rows);
    codegen::bind_inputs(attention_, plan::names_used(program_.steps), program_);
    order_tensors(attention_, program_);
    const Status status = plan::validate(program_);
    ATTN_CHECK(status.ok(), status.error().message);
    return std::move(program_);
  }

 private:
  static std::string made(const std::string& tensor) { return tensor + ".made"; }
  static std::string rest_of(const std::string& learned) {
    return gradient::gradient_name(learned) + ".rest_of_scores";
  }
  std::array<std::int64_t, 4> strides(const std::string& tensor) const {
    const Dims4 found = stored_strides(attention_, tensor);
    return {found[0], found[1], found[2], found[3]};
  }

  void restore(const std::string& name, Role role) {
    const Dims4 dims = stored_dims(attention_, name), found = stored_strides(attention_, name);
    program_.tensors.push_back({name,
                                role,
                                attention_.dtype_of(name),
                                {dims.begin(), dims.end()},
                                {found.begin(), found.end()},
                                16,
                                "",
                                false});
  }

  void add_gradients(const std::vector<codegen::PrologueRows>& rows) {
    codegen::PrologueGradientTensors tensors;
    const std::vector<std::string> wanted = gradient::wanted_gradients(attention_);
    for (const codegen::PrologueRows& one : rows) {
      const std::string& name = one.view->tensor;
      const std::string gradient = gradient::gradient_name(name);
      if (!make_internal(program_, gradient, made(gradient))) continue;
      const bool is_wanted = std::ranges::find(wanted, name) != wanted.end();
      if (is_wanted) restore(gradient, Role::gradient);
      tensors.of.push_back({one, made(gradient), is_wanted ? gradient : "", strides(gradient)});
    }
    if (tensors.of.empty()) return;
    std::set<std::string> with_rest;
    tensors.learned = ir::learned_by_prologues(attention_);
    for (const std::string& name : tensors.learned) {
      if (make_internal(program_, gradient::gradient_name(name), rest_of(name)))
        with_rest.insert(name);
      add_learned_gradient(attention_, name, program_);
    }
    tensors.rest = [&with_rest](const std::string& name) {
      return with_rest.contains(name) ? rest_of(name) : std::string();
    };
    codegen::MadeSteps steps = codegen::prologue_gradients(attention_, tensors);
    std::ranges::move(steps.internals, std::back_inserter(program_.internals));
    std::ranges::move(steps.steps, std::back_inserter(program_.steps));
  }

  const ir::Attention& attention_;
  plan::Program program_;
  const std::vector<ir::PrologueView> views_;
};

// Why the rows of the tensor cannot be read by the kernel before, or "".
std::string why_not(const ir::Attention& attention, const char* tensor) {
  const ir::Layout& layout = layout_of(attention, tensor);
  switch (layout.kind) {
    case ir::LayoutKind::thd: return "are packed (layout thd)";
    case ir::LayoutKind::paged: return "are in pages";
    case ir::LayoutKind::packed_qkv:
    case ir::LayoutKind::packed_kv: return "are parts of one tensor with those of v";
    default: return layout.bound_strides ? "have bound strides" : "";
  }
}

}  // namespace

Status check_prologues(const ir::Attention& attention, bool backward) {
  const std::int64_t most = codegen::most_columns_of_prologues(backward);
  for (const ir::PrologueView& view : ir::prologue_views(attention)) {
    const bool of_q = view.tensor == "q";
    const ir::SourcePos pos = (of_q ? attention.prologue_q : attention.prologue_k)->pos;
    if (const std::string why = why_not(attention, view.tensor.c_str()); !why.empty()) {
      return unsupported(pos,
                         fmt::format("the rows of `{}` {}, and the kernel of a prologue reads rows "
                                     "at strides that are known",
                                     view.tensor, why),
                         "use another layout for it, with `lengths` for sequences of different "
                         "lengths, or compute it before");
    }
    if (view.columns() > most) {
      return unsupported(pos, fmt::format("a kernel of prologues takes rows of up to {} elements, "
                                          "{}: shared memory has no more",
                                          most, backward ? "backward" : "forward"));
    }
    std::vector<ir::ExprId> roots = view.sums;
    roots.push_back(view.value);
    if (codegen::faults_of(view.attention, roots).empty()) continue;
    return unsupported(
        pos,
        fmt::format("the prologue of `{}` may have no value: an index, a divisor or a shift in it "
                    "is not known to be in range, whatever guards it",
                    view.tensor),
        "write indexes that stay in range, such as `x[(d_idx + D // 2) % D]`, or `clamp` them");
  }
  return {};
}

plan::Program with_prologues(const ir::Attention& attention, plan::Program program) {
  if (!ir::has_prologue(attention)) return program;
  return WithPrologues(attention, std::move(program)).run();
}

}  // namespace attn::engines
