#include "compiler/engines/native/chosen_keys.h"

#include <utility>

#include "compiler/codegen/scores.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/listed_keys.h"
#include "compiler/rewrite/rebuild.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::LayoutKind;
using ir::Op;

constexpr const char* kLengthsOfCache = "lengths_of_cache";

PoolStrides strides_of_cache(const ir::Attention& whole, const char* name) {
  const Dims4 strides = stored_strides(whole, name);
  return {strides[0], strides[1], strides[2]};
}

// The attention with its tensor `from` as `to`.
ir::Attention renamed(const ir::Attention& attention, std::string_view from,
                      const std::string& to) {
  ir::Attention made =
      rewrite::rebuilt(attention,
                       [&](rewrite::SimplifyingBuilder&, ir::Dag& dag, ExprId id,
                           const std::vector<ExprId>& operands) -> std::optional<ExprId> {
                         const ir::Node& node = attention.dag[id];
                         if (!node.is(Op::load_) || attention.dag.symbol_of(id) != from)
                           return std::nullopt;
                         return dag.add_symbol(Op::load_, to, node.type, operands, node.pos);
                       });
  for (ir::CapturedTensor& tensor : made.tensors) {
    if (tensor.name == from) tensor.name = to;
  }
  return made;
}

// Counts of the lists become the lengths of the kernel's batches. How long lists are is not known:
// all are taken to be full.
void add_counts(const ir::Attention& whole, ir::Attention& attention, ChosenKeys& chosen) {
  const std::string lengths(ir::kLengthsKv);
  if (whole.lengths_kv) chosen.lengths = whole.gather->counts.empty() ? lengths : kLengthsOfCache;
  if (whole.gather->counts.empty()) return;
  if (whole.lengths_kv) {
    attention = renamed(attention, lengths, kLengthsOfCache);
    chosen.names[kLengthsOfCache] = lengths;
  }
  chosen.names[lengths] = whole.gather->counts;
  ir::CapturedTensor counts{
      lengths, DType::i32, {attention.dag.integer(attention.dims[Dim::B])}, whole.gather->pos};
  counts.fallback = attention.dag.integer(attention.dims[Dim::Skv]);
  attention.tensors.push_back(std::move(counts));
  attention.lengths_kv = true;
}

}  // namespace

Status check_chosen(const ir::Attention& attention, bool of_warps) {
  if (!attention.gather) return {};
  const ir::SourcePos pos = attention.gather->pos;
  if (of_warps) {
    return unsupported(pos, "attnc's kernels for this GPU gather no keys",
                       "those for compute capability 9.0 do");
  }
  for (const char* name : {"q", "k", "v", "o"}) {
    if (layout_of(attention, name).kind != LayoutKind::thd) continue;
    return unsupported(pos, "attnc's kernels gather no keys for packed sequences",
                       "with `B = 1` rows of all sequences are those of one, and lists have "
                       "positions of one cache");
  }
  if (attention.lengths_q) {
    return unsupported(pos, "attnc's kernels gather keys for all rows of a batch",
                       "leave `q` out of `lengths`: a row with a count of 0 sees nothing");
  }
  if (attention.epilogue || !attention.sums.empty()) {
    return unsupported(pos,
                       attention.epilogue ? "attnc's kernels gather keys without an epilogue"
                                          : "attnc's kernels gather keys without sums",
                       "compute that outside of the attention");
  }
  if (layout_of(attention, "k").kind != layout_of(attention, "v").kind ||
      layout_of(attention, "k").tables != 1) {
    return unsupported(pos, "attnc's kernels gather keys and values of one layout",
                       "give k and v the same layout, and one page table");
  }
  if (layout_of(attention, "o").bound_strides || layout_of(attention, "q").bound_strides) {
    return unsupported(pos, "attnc's kernels gather keys for rows at strides that the spec states",
                       "leave `strides = bound` to k and v");
  }
  return {};
}

ChosenForm form_of_chosen(const ir::Attention& whole) {
  ChosenForm made{rewrite::with_rows_as_batches(rewrite::with_keys_listed(whole, false)), {}};
  ir::Attention& attention = made.attention;
  ChosenKeys& chosen = made.chosen;
  chosen.keys = whole.gather->keys;
  chosen.rows = whole.dims[Dim::Sq], chosen.batches = whole.dims[Dim::B];
  chosen.cache = whole.dims[Dim::Skv];
  const ir::Layout& cache = layout_of(whole, "k");
  if (cache.kind == LayoutKind::paged) {
    chosen.page = cache.page, chosen.pages = page_table_dims(whole, "k")[2];
    chosen.table = page_table_name(whole, "k");
  }
  chosen.k = strides_of_cache(whole, "k"), chosen.v = strides_of_cache(whole, "v");
  attention.values_of_keys = whole.values_of_keys;
  for (const char* name : {"q", "o"})
    attention.layouts[name] = {LayoutKind::strided, stored_strides(whole, name)};
  const ir::Layout pages_of_one{.kind = LayoutKind::paged,
                                .page = 1,
                                .bound_strides = cache.bound_strides,
                                .rows = cache.rows};
  attention.layouts["k"] = attention.layouts["v"] = pages_of_one;
  add_counts(whole, attention, chosen);
  return made;
}

ir::Attention with_rows_of_whole(ir::Attention attention, const ChosenKeys& chosen) {
  attention.dims.set(Dim::B, chosen.batches);
  attention.dims.set(Dim::Sq, chosen.rows);
  return attention;
}

void rename_tensors(const ChosenKeys& chosen, plan::KernelStep& step) {
  plan::Step whole = std::move(step);
  plan::change_tensors(whole, [&](plan::TensorOperand& tensor) {
    const auto found = chosen.names.find(tensor.name);
    if (found != chosen.names.end()) tensor.name = found->second;
  });
  step = std::get<plan::KernelStep>(std::move(whole));
}

void check_positions(const ir::Attention& whole, plan::Program& program) {
  codegen::check_scores(rewrite::with_positions_read(whole), program);
}

}  // namespace attn::engines::native
