#include <fmt/format.h>

#include "compiler/codegen/steps.h"
#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/cudnn/lower.h"
#include "compiler/engines/cudnn/lower_block_sparse.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/pass.h"
#include "compiler/target/capabilities.h"

namespace attn::engines {
namespace {

// Bytes moved for derived tensors, each of which is written and read.
double derived_bytes(const rewrite::Hoisted& hoisted) {
  double bytes = 0;
  for (const rewrite::DerivedTensor& tensor : hoisted.derived) {
    auto own = static_cast<double>(size_of(tensor.dtype));
    for (const std::int64_t extent : tensor.dims) own *= static_cast<double>(extent);
    bytes += tensor.once ? own : 2 * own;
  }
  return bytes;
}

Error without_block_lists(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  for (const ir::Dim dim : {ir::Dim::Sq, ir::Dim::Skv}) {
    if (d[dim] % kSmallestBlock == 0) continue;
    return unsupported(attention.pos,
                       fmt::format("tiles are whole, and {} = {} is not a multiple of {}",
                                   to_string(dim), d[dim], kSmallestBlock));
  }
  return unsupported(attention.pos, "no tile of rows is known to see less than all blocks");
}

// The tiles' attention with products alone.
ir::Attention bare(const ir::Attention& attention, const BlockLists& lists) {
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
  const target::Context& context = subject.context();
  if (context.backward() && !can(target::Capability::backward_of_pages, context)) {
    return unsupported(attention.pos, "cuDNN's backward cannot skip blocks by a list");
  }
  ATTN_RETURN_IF_ERROR(check_forward(attention));
  const std::optional<BlockLists>& lists = block_lists(subject.mask());
  if (!lists) return without_block_lists(attention);
  return predicted_ms_of_making(*lists, attention.dims, context.gpu) +
         predicted_ms(*lists, bare(attention, *lists), context) +
         predicted_ms_of_moving(0, context.gpu);
}

Result<Lowered> block_sparse::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const ir::Attention& attention = subject.attention();
  const target::Context& context = subject.context();
  const BlockLists& lists = *block_lists(subject.mask());
  ATTN_ASSIGN(const Tiled tiled, engines::tiled(attention, lists, context));
  const ir::Attention form = rewrite::kernel_form(tiled.attention, context);
  ATTN_ASSIGN(const rewrite::Hoisted parts, hoisted(form, {}, context));
  ATTN_ASSIGN(plan::Program program, engines::lower(parts.attention, context));
  program = codegen::with_derived(form, parts, std::move(program));
  ATTN_ASSIGN(program, of_block_lists(attention, tiled, std::move(program)));
  const double moved = bytes_moved(attention, tiled) + derived_bytes(parts);
  const double ms = predicted_ms_of_making(lists, attention.dims, context.gpu) +
                    predicted_ms(lists, parts.attention, context) +
                    predicted_ms_of_moving(moved, context.gpu);
  Lowered lowered{std::move(program), ms, {to_text(lists)}};
  lowered.kernels = {
      {.what = fmt::format("tiles of {} rows and pages of {} columns", lists.tile, lists.page),
       .view = whole_view(attention),
       .attention = attention,
       .rows = lists.tile,
       .columns = lists.page,
       .cell = lists.page,
       .masks_all = !lists.residual.empty()}};
  return lowered;
}

}  // namespace strategy
}  // namespace attn::engines
