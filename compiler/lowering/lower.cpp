#include "compiler/lowering/lower.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/forward.h"
#include "compiler/lowering/interface.h"
#include "compiler/lowering/staging.h"
#include "compiler/lowering/statistics.h"
#include "compiler/lowering/unsupported.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"

namespace attn::lowering {
namespace {

using ir::Dim;

Status check_bound(const ir::Attention& attention) {
  for (const Dim dim : ir::kDims) {
    if (attention.dims.get(dim)) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("dimension {} of `{}` is open", to_string(dim), attention.name),
                 {fmt::format("give it a size: --bind {}=1024", to_string(dim))},
                 {}};
  }
  return {};
}

// So that no stride or offset can leave 64 bits.
Status check_sizes(const ir::Attention& attention) {
  constexpr double kMost = 0x1p58;  // elements
  const ir::Dims& d = attention.dims;
  const auto product = [&d](std::initializer_list<Dim> dims) {
    double elements = 1;
    for (const Dim dim : dims) elements *= static_cast<double>(d[dim]);
    return elements;
  };
  const double largest = std::max({product({Dim::B, Dim::Hq, Dim::Sq, Dim::Skv}),
                                   product({Dim::B, Dim::Hq, Dim::Sq, Dim::Dqk}),
                                   product({Dim::B, Dim::Hq, Dim::Sq, Dim::Dv}),
                                   product({Dim::B, Dim::Hkv, Dim::Skv, Dim::Dqk}),
                                   product({Dim::B, Dim::Hkv, Dim::Skv, Dim::Dv})});
  if (largest <= kMost) return {};
  return unsupported(attention.pos,
                     fmt::format("the sizes of `{}` need tensors or scores of {:.1e} elements",
                                 attention.name, largest),
                     "at most 2^58 can be addressed");
}

// What cuDNN accepts and then does not do, in silence: found by comparing with the reference on an
// H200 (docs/cudnn.md).
Status check_known_wrong(const ir::Attention& attention) {
  if (attention.sink && (attention.wants_max || attention.wants_sum_exp)) {
    return unsupported(attention.pos, "cuDNN does not give max or sum_exp of scores beside a sink",
                       "`lse` has the sink in it, and can be had");
  }
  const ir::Layout& k = attention.layouts.find("k")->second;
  const ir::Layout& v = attention.layouts.find("v")->second;
  const bool paged = k.kind == ir::LayoutKind::paged && v.kind == ir::LayoutKind::paged;
  if (paged && k.page != v.page) {
    return unsupported(attention.pos,
                       "cuDNN reads the wrong rows where pages of k and v differ in size",
                       "give both the same `page`");
  }
  if (paged && attention.sink && attention.wants_lse && attention.dims[Dim::Sq] == 1) {
    return unsupported(attention.pos,
                       "with pages, a sink and a single row cuDNN's lse is off by up to 6e-3",
                       "leave `lse` out of `outputs`: o is right");
  }
  return {};
}

// cuDNN's own rule, which it states when the operation is made.
Status check_pages(const ir::Attention& attention) {
  for (const char* name : {"k", "v"}) {
    const ir::Layout& layout = attention.layouts.find(name)->second;
    if (layout.kind != ir::LayoutKind::paged) continue;
    if (std::has_single_bit(static_cast<std::uint64_t>(layout.page))) continue;
    return unsupported(attention.pos,
                       fmt::format("cuDNN reads pages of a power of two rows, and those of `{}` "
                                   "have {}",
                                   name, layout.page));
  }
  return {};
}

Status check_extents(const ir::Attention& attention, const plan::Program& program) {
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (last_offset(tensor.dims, tensor.strides)) continue;
    return unsupported(attention.pos,
                       fmt::format("tensor `{}` is too large to be addressed", tensor.name));
  }
  return {};
}

std::set<std::string> names_of(const plan::CudnnStep& step) {
  std::set<std::string> names;
  for (const plan::Operand& operand : step.operands) {
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&operand.source)) {
      names.insert(tensor->name);
    } else if (const auto* param = std::get_if<plan::ParamOperand>(&operand.source)) {
      names.insert(param->name);
    }
  }
  return names;
}

}  // namespace

Result<plan::Program> lower(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_bound(attention));
  ATTN_RETURN_IF_ERROR(check_sizes(attention));
  ATTN_RETURN_IF_ERROR(check_known_wrong(attention));
  ATTN_RETURN_IF_ERROR(check_pages(attention));
  if (!attention.wants_o) {
    return unsupported(attention.pos, "cuDNN's kernels always write o",
                       "list o in `outputs` beside lse");
  }
  ATTN_ASSIGN(plan::CudnnStep step, forward(attention));
  const std::set<std::string> used = names_of(step);
  plan::Program program;
  Controls made = controls(attention, used);
  program.tensors = bound_tensors(attention, used, made);
  program.internals = std::move(made.internals);
  for (const ir::Param& param : attention.params) {
    if (used.contains(param.name)) program.params.push_back({param.name, param.dtype});
  }
  ATTN_ASSIGN(Staging staged, staging(attention));
  for (plan::TensorInfo& copy : staged.internals) program.internals.push_back(std::move(copy));
  for (plan::DeriveStep& derive : made.steps) program.steps.emplace_back(std::move(derive));
  for (plan::DeriveStep& derive : staged.before) program.steps.emplace_back(std::move(derive));
  program.steps.emplace_back(std::move(step));
  for (plan::DeriveStep& derive : staged.after) program.steps.emplace_back(std::move(derive));
  Statistics rows = statistics(attention);
  for (plan::TensorInfo& row : rows.internals) program.internals.push_back(std::move(row));
  for (plan::DeriveStep& derive : rows.steps) program.steps.emplace_back(std::move(derive));
  ATTN_RETURN_IF_ERROR(check_extents(attention, program));
  if (const Status status = plan::validate(program); !status.ok()) {
    ATTN_CHECK(false, status.error().message);
  }
  return program;
}

}  // namespace attn::lowering
