#include "compiler/codegen/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/codegen/check.h"
#include "compiler/codegen/emit.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::codegen {
namespace {

// One step for the tensors made once and one for the others, or more if a step cannot hold them.
std::vector<plan::Step> derive_steps(const rewrite::Hoisted& hoisted) {
  std::vector<plan::Step> steps;
  for (const bool once : {true, false}) {
    std::vector<rewrite::DerivedTensor> outputs;
    for (const rewrite::DerivedTensor& tensor : hoisted.derived) {
      if (tensor.once == once) outputs.push_back(tensor);
      if (outputs.size() < plan::kMostOutputs) continue;
      steps.emplace_back(emit_step(hoisted.attention, outputs));
      outputs.clear();
    }
    if (!outputs.empty()) steps.emplace_back(emit_step(hoisted.attention, outputs));
  }
  return steps;
}

plan::TensorInfo captured_info(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  std::vector<std::int64_t> dims;
  for (const ir::ExprId extent : tensor.extents) {
    dims.push_back(*ir::fold_integer(attention.dag, extent, attention.dims));
  }
  std::vector<std::int64_t> strides = row_major_strides(dims);
  return {tensor.name,     plan::TensorRole::captured, tensor.dtype,
          std::move(dims), std::move(strides),         16};
}

// Sorts captured tensors in the order of the spec, adding those of `names` that the program does
// not compute.
void bind_tensors(const ir::Attention& attention, const std::set<std::string>& names,
                  plan::Program& program) {
  std::vector<plan::TensorInfo>& tensors = program.tensors;
  std::vector<plan::TensorInfo> captured;
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    const auto bound = std::ranges::find(tensors, tensor.name, &plan::TensorInfo::name);
    const bool made = std::ranges::find(program.internals, tensor.name, &plan::TensorInfo::name) !=
                      program.internals.end();
    if (bound != tensors.end()) {
      captured.push_back(std::move(*bound));
      tensors.erase(bound);
    } else if (!made && names.contains(tensor.name)) {
      captured.push_back(captured_info(attention, tensor));
    }
  }
  // The place after q, k and v, of which there may be only q.
  const auto behind = std::ranges::find_if(tensors, [](const plan::TensorInfo& tensor) {
    return tensor.role > plan::TensorRole::value;
  });
  tensors.insert(behind, std::make_move_iterator(captured.begin()),
                 std::make_move_iterator(captured.end()));
}

// Tensors that lowering computes exist only once the first cuDNN step runs. A program without such
// a step computes none.
std::vector<plan::Step>::iterator first_cudnn_step(std::vector<plan::Step>& steps) {
  const auto found = std::ranges::find_if(
      steps, [](const plan::Step& step) { return std::holds_alternative<plan::CudnnStep>(step); });
  return found == steps.end() ? steps.begin() : found;
}

void bind_params(const ir::Attention& attention, const std::set<std::string>& names,
                 std::vector<plan::ParamInfo>& params) {
  std::vector<plan::ParamInfo> all;
  for (const ir::Param& param : attention.params) {
    const bool bound =
        std::ranges::find(params, param.name, &plan::ParamInfo::name) != params.end();
    if (bound || names.contains(param.name)) all.push_back({param.name, param.dtype});
  }
  params = std::move(all);
}

}  // namespace

void bind_inputs(const ir::Attention& attention, const std::set<std::string>& names,
                 plan::Program& program) {
  bind_tensors(attention, names, program);
  bind_params(attention, names, program.params);
}

namespace {

rewrite::DerivedTensor length_tensor(const ir::Attention& attention, std::string_view name,
                                     ir::ExprId length) {
  const ir::ExprId roots[] = {length};
  const auto varies = [&](ir::ExprId id) {
    const ir::Op op = attention.dag[id].op;
    return op == ir::Op::load_ || op == ir::Op::param_;
  };
  rewrite::DerivedTensor tensor{std::string(name), length, DType::i32, {}, {}, false};
  tensor.axes.batch = true;
  tensor.dims = {attention.dims[ir::Dim::B]};
  tensor.once = std::ranges::none_of(ir::reachable(attention.dag, roots), varies);
  return tensor;
}

// `place` returns where the steps that compute the derived tensors are inserted.
template <typename Place>
plan::Program with_steps(const ir::Attention& attention, const rewrite::Hoisted& hoisted,
                         plan::Program program, const Place& place) {
  for (const rewrite::DerivedTensor& tensor : hoisted.derived) {
    std::erase_if(program.tensors,
                  [&tensor](const plan::TensorInfo& info) { return info.name == tensor.name; });
    program.internals.push_back(plan::internal_tensor(tensor.name, tensor.dtype, tensor.dims));
  }
  std::vector<plan::Step> steps = derive_steps(hoisted);
  const std::set<std::string> names = plan::names_used(steps);
  bind_inputs(hoisted.attention, names, program);
  program.steps.insert(place(program.steps), std::make_move_iterator(steps.begin()),
                       std::make_move_iterator(steps.end()));
  set_check(program, index_check(attention, hoisted));
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
  return program;
}

}  // namespace

plan::Program with_derived(const ir::Attention& attention, const rewrite::Hoisted& hoisted,
                           plan::Program program) {
  if (hoisted.derived.empty()) return program;
  return with_steps(attention, hoisted, std::move(program), first_cudnn_step);
}

// Lowering's own kernels, including copies, also read lengths.
plan::Program with_lengths(const ir::Attention& attention, const masks::Padding& padding,
                           plan::Program program) {
  rewrite::Hoisted lengths{padding.attention, {}, {}};
  const auto derive = [&](std::string_view name, std::optional<ir::ExprId> length) {
    if (length) lengths.derived.push_back(length_tensor(padding.attention, name, *length));
  };
  derive(ir::kLengthsQ, padding.rows);
  derive(ir::kLengthsKv, padding.columns);
  return with_steps(attention, lengths, std::move(program),
                    [](std::vector<plan::Step>& steps) { return steps.begin(); });
}

plan::Program with_cancelled(const rewrite::Cancelled& cancelled, plan::Program program) {
  const ir::Attention& attention = cancelled.attention;
  if (!attention.wants_lse) return program;
  const std::string made = attention.unused_name("lse_made");       // f32 [B,Hq,Sq], by the kernel
  const std::string name = attention.unused_name("lse_cancelled");  // f32 [Hq,Sq]
  for (plan::Step& step : program.steps) {
    plan::change_tensors(step, [&made](plan::TensorOperand& tensor) {
      if (tensor.name == "lse") tensor.name = made;
    });
  }
  const ir::Dims& dims = attention.dims;
  const std::int64_t heads = dims[ir::Dim::Hq], rows = dims[ir::Dim::Sq];
  rewrite::DerivedTensor term{name, cancelled.term, DType::f32, {}, {heads, rows}, true};
  term.axes.head = term.axes.row = true;
  program.internals.push_back(plan::internal_tensor(name, DType::f32, {heads, rows}));
  program.internals.push_back(
      plan::internal_tensor(made, DType::f32, {dims[ir::Dim::B], heads, rows}));
  program.steps.insert(program.steps.begin(), emit_step(attention, {term}));
  codegen::KernelText sum;
  sum.read(made, DType::f32, "made");
  sum.read(name, DType::f32, "term");
  sum.make("lse", DType::f32, dims[ir::Dim::B] * heads * rows,
           "lse plus the term that is constant per row",
           fmt::format("out[i] = made[i] + term[i % {}LL];", heads * rows));
  program.steps.emplace_back(std::move(sum).finish(false));
  return program;
}

}  // namespace attn::codegen
