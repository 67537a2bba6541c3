#include "compiler/engines/native/caches.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "compiler/engines/native/tiles.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/cache_scales.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr std::int64_t kVectorOf8Bits = 16;  // elements

// The expression with `by` in place of that leaf.
ExprId substituted(ir::Dag& dag, ExprId root, Op leaf, ExprId by) {
  std::map<ExprId, ExprId> made;
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    const ir::Node& node = dag[id];
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(made.at(operand));
    made[id] = node.is(leaf) ? by : operands == node.operands ? id : dag.add_like(node, operands);
  }
  return made.at(root);
}

// The scale of the keys of a query head.
ExprId scale_of_head(std::string_view name, ir::Attention& attention) {
  ir::Dag& dag = attention.dag;
  const ir::SourcePos pos = attention.cache->pos;
  const ir::CacheScaleInfo& of = ir::info(attention.cache->by);
  const std::int64_t group = attention.dims[Dim::Hq] / attention.dims[Dim::Hkv];
  std::vector<ExprId> indexes;
  if (of.of_batch) indexes.push_back(dag.leaf(Op::batch_, pos));
  if (of.of_head) {
    const ExprId head = dag.leaf(Op::head_, pos);
    indexes.push_back(group == 1 ? head
                                 : dag.add(Op::floordiv_, {head, dag.integer(group, pos)}, pos));
  }
  if (indexes.empty()) indexes.push_back(dag.integer(0, pos));
  return dag.add_symbol(Op::load_, std::string(name), ir::Type::real, indexes, pos);
}

Status check_rows(const ir::Attention& attention, const char* name, Dim depth) {
  if (attention.dims[depth] > kMostDepthOf8Bits) {
    return unsupported(
        attention.cache->pos,
        fmt::format("attnc's own engine takes `{}` of 8 bits with {} up to {} (this is {})", name,
                    to_string(depth), kMostDepthOf8Bits, attention.dims[depth]));
  }
  if (attention.dims[depth] % kVectorOf8Bits != 0) {
    return unsupported(attention.cache->pos,
                       fmt::format("attnc's own engine takes `{}` of 8 bits with {} in multiples "
                                   "of {} (this is {})",
                                   name, to_string(depth), kVectorOf8Bits, attention.dims[depth]));
  }
  const Dims4 dims = stored_dims(attention, name), strides = stored_strides(attention, name);
  bool fits = strides[3] == 1;
  for (std::size_t i = 0; i < 3; ++i) fits &= dims[i] == 1 || strides[i] % kVectorOf8Bits == 0;
  if (fits) return {};
  return unsupported(
      attention.cache->pos,
      fmt::format("the rows of `{}` are not contiguous, or not at multiples of 16 bytes", name),
      "threads copy 16 bytes at a time");
}

bool converts_queries(const ir::Attention& attention) {
  return attention.cache && attention.is_softmax() && !ir::has_token_scales(attention);
}

}  // namespace

Status check_cache(const ir::Attention& attention, bool of_warps) {
  if (attention.wants_o_inner) {
    return unsupported(attention.epilogue_pos,
                       "attnc's kernels apply the scale of values where the epilogue does, so "
                       "`o_inner` is not known",
                       "leave `o_inner` out of `outputs`");
  }
  if (ir::has_token_scales(attention) && attention.dtype == DType::f16) {
    return unsupported(attention.cache->pos,
                       "attnc's kernels scale weights of each key in the type of q, and small ones "
                       "are 0 in f16",
                       "use `dtype bf16`, or `quantize kv(head);`");
  }
  for (const char* name : {"k", "v"}) {
    if (!ir::has_token_scales(attention) || !layout_of(attention, name).bound_strides) continue;
    return unsupported(attention.cache->pos,
                       fmt::format("attnc's kernels take scales of each key with strides that the "
                                   "layout of `{}` states",
                                   name),
                       "leave out `strides = bound`, or use `quantize kv(head);`");
  }
  return of_warps ? Status() : check_rows_of_cache(attention);
}

Status check_rows_of_cache(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_rows(attention, "k", Dim::Dqk));
  return check_rows(attention, "v", Dim::Dv);
}

ir::Attention with_scales_in_expressions(ir::Attention attention, bool of_warps) {
  if (!attention.cache || ir::has_token_scales(attention)) return attention;
  ir::Dag& dag = attention.dag;
  const ir::SourcePos pos = attention.cache->pos;
  const ExprId of_keys = scale_of_head(ir::kKeyScale, attention);
  if (converts_queries(attention) && !of_warps) {
    attention.cache->factor_of_queries = of_keys;
  } else {
    const ExprId score = dag.add(Op::mul_, {dag.leaf(Op::score_, pos), of_keys}, pos);
    attention.score = substituted(dag, attention.score, Op::score_, score);
  }
  const ExprId output = dag.leaf(Op::output_, pos);
  const ExprId of_values = scale_of_head(ir::kValueScale, attention);
  const ExprId scaled = dag.add(Op::mul_, {output, of_values}, pos);
  attention.epilogue =
      attention.epilogue ? substituted(dag, *attention.epilogue, Op::output_, scaled) : scaled;
  if (attention.epilogue_pos == ir::SourcePos()) attention.epilogue_pos = pos;
  return attention;
}

DType product_type(const ir::Attention& attention) {
  return attention.cache && attention.cache->factor_of_queries ? DType::f16 : attention.dtype;
}

}  // namespace attn::engines::native
