#include "compiler/lowering/strategy/block_sparse.h"

#include <fmt/format.h>

#include "compiler/derive/steps.h"
#include "compiler/engines/cudnn/hoisting.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/lowering/cudnn/lower.h"
#include "compiler/passes/rewrite/kernel_form.h"
#include "compiler/passes/strategy/cost.h"
#include "compiler/planning/capabilities.h"

namespace attn::engines {
namespace {

// Bytes moved for derived tensors, each of which is written and read.
double derived_bytes(const passes::Hoisted& hoisted) {
  double bytes = 0;
  for (const passes::DerivedTensor& tensor : hoisted.derived) {
    auto own = static_cast<double>(size_of(tensor.dtype));
    for (const std::int64_t extent : tensor.dims) own *= static_cast<double>(extent);
    bytes += tensor.once ? own : 2 * own;
  }
  return bytes;
}

Error without_block_lists(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  for (const ir::Dim dim : {ir::Dim::Sq, ir::Dim::Skv}) {
    if (d[dim] % passes::kSmallestBlock == 0) continue;
    return lowering::unsupported(attention.pos,
                                 fmt::format("tiles are whole, and {} = {} is not a multiple of {}",
                                             to_string(dim), d[dim], passes::kSmallestBlock));
  }
  return lowering::unsupported(attention.pos,
                               "no tile of rows is known to see less than all blocks");
}

// The tiles' attention with products alone.
ir::Attention bare(const ir::Attention& attention, const passes::BlockLists& lists) {
  ir::Attention tiles = attention;
  tiles.masks.clear();
  tiles.score = tiles.dag.leaf(ir::Op::score_);
  tiles.dims.set(ir::Dim::B, attention.dims[ir::Dim::B] * lists.tiles);
  return tiles;
}

}  // namespace

namespace strategy {

Result<double> block_sparse::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  const planning::Context& context = subject.context();
  if (context.backward() && !can(planning::Capability::backward_of_pages, context)) {
    return lowering::unsupported(attention.pos, "cuDNN's backward cannot skip blocks by a list");
  }
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  const std::optional<passes::BlockLists>& lists = passes::block_lists(subject.mask());
  if (!lists) return without_block_lists(attention);
  return passes::predicted_ms_of_making(*lists, attention.dims, context.gpu) +
         passes::predicted_ms(*lists, bare(attention, *lists), context) +
         passes::predicted_ms_of_moving(0, context.gpu);
}

Result<Lowered> block_sparse::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const ir::Attention& attention = subject.attention();
  const planning::Context& context = subject.context();
  const passes::BlockLists& lists = *passes::block_lists(subject.mask());
  ATTN_ASSIGN(const lowering::Tiled tiled, lowering::tiled(attention, lists, context));
  const ir::Attention form = passes::kernel_form(tiled.attention, context);
  ATTN_ASSIGN(const passes::Hoisted parts, hoisted(form, {}, context));
  ATTN_ASSIGN(plan::Program program, lowering::lower(parts.attention, context));
  program = derive::with_derived(form, parts, std::move(program));
  ATTN_ASSIGN(program, lowering::of_block_lists(attention, tiled, std::move(program)));
  const double moved = lowering::bytes_moved(attention, tiled) + derived_bytes(parts);
  const double predicted_ms = passes::predicted_ms_of_making(lists, attention.dims, context.gpu) +
                              passes::predicted_ms(lists, parts.attention, context) +
                              passes::predicted_ms_of_moving(moved, context.gpu);
  Lowered lowered{std::move(program), predicted_ms, {passes::to_text(lists)}};
  lowered.kernels = {
      {.what = fmt::format("tiles of {} rows and pages of {} columns", lists.tile, lists.page),
       .view = passes::whole_view(attention),
       .attention = attention,
       .rows = lists.tile,
       .columns = lists.page,
       .cell = lists.page,
       .masks_all = !lists.residual.empty()}};
  return lowered;
}

}  // namespace strategy
}  // namespace attn::engines
