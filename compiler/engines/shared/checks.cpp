#include "compiler/engines/shared/checks.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/bound.h"
#include "compiler/masks/axes.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"

namespace attn::engines {
namespace {

using ir::Dim;

// Kernels take one value per head, and so does the sink's gradient.
Status check_sink(const ir::Attention& attention) {
  if (!attention.sink || attention.dims[Dim::B] == 1) return {};
  if (!masks::Dependence(attention.dag)[*attention.sink].batch) return {};
  return unsupported(attention.dag[*attention.sink].pos,
                     "the sink depends on the batch, but kernels take one value per head",
                     "a sink may use `h`, tensors over the heads, params and constants");
}

Status check_extents(const ir::Attention& attention, const plan::Program& program) {
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (fits_memory(tensor.dims, tensor.strides, size_of(tensor.dtype))) continue;
    return unsupported(attention.pos,
                       fmt::format("tensor `{}` is too large to address", tensor.name));
  }
  return {};
}

Status check_gradient(const ir::Attention& attention, const std::string& name) {
  if (layout_of(attention, name).kind == ir::LayoutKind::paged) {
    return unsupported(attention.pos,
                       fmt::format("`{}` is paged, and paged tensors have no gradient", name),
                       "use another layout for training: pages are for inference");
  }
  if (!overlaps(logical_dims(attention, name), stored_strides(attention, "d" + name))) return {};
  return unsupported(
      attention.pos,
      fmt::format("elements of `{0}` overlap in memory, and so would those of d{0}", name));
}

double product(const ir::Dims& sizes, std::initializer_list<Dim> dims) {
  double elements = 1;
  for (const Dim dim : dims) elements *= static_cast<double>(sizes[dim]);
  return elements;
}

double largest_tensor(const ir::Dims& sizes) {
  return std::max({product(sizes, {Dim::B, Dim::Hq, Dim::Sq, Dim::Dqk}),
                   product(sizes, {Dim::B, Dim::Hq, Dim::Sq, Dim::Dv}),
                   product(sizes, {Dim::B, Dim::Hkv, Dim::Skv, Dim::Dqk}),
                   product(sizes, {Dim::B, Dim::Hkv, Dim::Skv, Dim::Dv})});
}

Status check_elements(const ir::Attention& attention, std::string_view what, double largest) {
  constexpr double kMost = 0x1p58;
  if (largest <= kMost) return {};
  return unsupported(
      attention.pos,
      fmt::format("the sizes of `{}` need {} of {:.1e} elements", attention.name, what, largest),
      "at most 2^58 can be addressed");
}

}  // namespace

Status check_not_8_bits(const ir::Attention& attention, std::string_view whose) {
  if (!attention.quantize && !attention.cache) return {};
  return unsupported(attention.quantize ? attention.quantize->pos : attention.cache->pos,
                     fmt::format("{} kernels compute no 8-bit attention", whose),
                     "use `dtype bf16;` without `quantize`");
}

Status check_scales_of_gradients(const ir::Attention& attention) {
  if (!attention.quantize || !attention.gradients.empty()) return {};
  return unsupported(attention.quantize->pos,
                     "8-bit attention has gradients only with a `grad` clause, which declares "
                     "their scales",
                     "add `grad q, k, v;`");
}

Status check_sizes(const ir::Attention& attention) {
  const double scores = product(attention.dims, {Dim::B, Dim::Hq, Dim::Sq, Dim::Skv});
  return check_elements(attention, "tensors or scores",
                        std::max(scores, largest_tensor(attention.dims)));
}

Status check_tensors(const ir::Attention& attention) {
  return check_elements(attention, "tensors", largest_tensor(attention.dims));
}

Status check_attention(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(ir::check_bound(attention));
  ATTN_RETURN_IF_ERROR(check_sink(attention));
  return check_sizes(attention);
}

Status check_forward(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_CHECK(attention.wants_o, "kernels always write o: see interface.h");
  return {};
}

Status check_gradients(const ir::Attention& attention) {
  for (const std::string& name : gradient::wanted_gradients(attention)) {
    if (!attention.layouts.contains(name)) continue;
    ATTN_RETURN_IF_ERROR(check_gradient(attention, name));
  }
  return {};
}

Status check_no_learned(const ir::Attention& attention) {
  for (const std::string& of : gradient::wanted_gradients(attention)) {
    if (of == "q" || of == "k" || of == "v") continue;
    return unsupported(attention.pos, "gradients of learned tensors need all scores at once");
  }
  return {};
}

Status check_program(const ir::Attention& attention, const plan::Program& program) {
  ATTN_RETURN_IF_ERROR(check_extents(attention, program));
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
  return {};
}

}  // namespace attn::engines
