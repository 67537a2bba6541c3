#include "compiler/rewrite/listed_keys.h"

#include <limits>
#include <vector>

#include "compiler/rewrite/rebuild.h"

namespace attn::rewrite {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

ExprId load_at_row(ir::Dag& dag, const std::string& tensor, std::vector<ExprId> further,
                   ir::SourcePos pos) {
  std::vector<ExprId> indexes = {dag.leaf(Op::batch_), dag.leaf(Op::row_)};
  indexes.insert(indexes.end(), further.begin(), further.end());
  return dag.add_symbol(Op::load_, tensor, ir::Type::integer, indexes, pos);
}

// What is listed at the column.
ExprId position(ir::Dag& dag, const ir::Gather& gather) {
  return load_at_row(dag, gather.keys, {dag.leaf(Op::column_)}, gather.pos);
}

// The masks of a list, in the order in which they guard what comes after.
std::vector<ExprId> masks_of(const ir::Attention& from, bool counts, ir::Dag& dag) {
  const ir::Gather& gather = *from.gather;
  std::vector<ExprId> masks;
  if (counts && !gather.counts.empty()) {
    const ExprId count = load_at_row(dag, gather.counts, {}, gather.pos);
    masks.push_back(dag.add(Op::lt_, {dag.leaf(Op::column_), count}, gather.pos));
  }
  const ExprId key = position(dag, gather);
  masks.push_back(dag.add(Op::ge_, {key, dag.integer(0)}, gather.pos));
  if (from.lengths_kv) {
    const ExprId batch[] = {dag.leaf(Op::batch_)};
    const ExprId length = dag.add_symbol(Op::load_, std::string(ir::kLengthsKv), ir::Type::integer,
                                         batch, gather.pos);
    masks.push_back(dag.add(Op::lt_, {key, length}, gather.pos));
  }
  return masks;
}

}  // namespace

ir::Attention with_keys_listed(const ir::Attention& attention, bool counts) {
  const ir::Gather gather = *attention.gather;
  const std::int64_t listed = attention.keys_of_row();
  ir::Attention made =
      rebuilt(attention,
              [&](SimplifyingBuilder&, ir::Dag& dag, ExprId id,
                  const std::vector<ExprId>&) -> std::optional<ExprId> {
                const ir::Node& node = attention.dag[id];
                if (node.is(Op::column_)) return position(dag, gather);
                if (!node.is(Op::dim_)) return std::nullopt;
                return dag.integer(attention.dims[*ir::parse_dim(attention.dag.symbol_of(id))]);
              });
  std::vector<ExprId> masks = masks_of(attention, counts, made.dag);
  masks.insert(masks.end(), made.masks.begin(), made.masks.end());
  made.masks = std::move(masks);
  made.gather.reset();
  made.values_of_keys = made.lengths_kv = false;
  made.dims.set(Dim::Skv, listed);
  return made;
}

ir::Attention with_positions_read(const ir::Attention& attention) {
  const ir::Gather& gather = *attention.gather;
  ir::Attention made = with_keys_listed(attention, false);
  ir::Dag& dag = made.dag;
  const ir::SourcePos pos = gather.pos;
  // An element of a computed tensor of so many elements.
  const auto element = [&](const char* name, std::int64_t size, ExprId at) {
    ir::CapturedTensor tensor{made.unused_name(name), DType::f32, {dag.integer(size)}, pos};
    tensor.computed = true;
    const ExprId indexes[] = {at};
    const ExprId load = dag.add_symbol(Op::load_, tensor.name, ir::Type::real, indexes, pos);
    made.tensors.push_back(std::move(tensor));
    return load;
  };
  const auto if_shown = [&](ExprId shown, ExprId value) {
    return dag.add(Op::select_, {shown, value, dag.real(0, pos)}, pos);
  };
  ExprId visible = dag.boolean(true);
  for (const ExprId mask : made.masks) visible = dag.add(Op::and_, {visible, mask}, pos);
  const ExprId key = position(dag, gather);
  const ExprId read = element("keys", attention.dims[Dim::Skv], key);
  const ExprId is_key = dag.add(Op::ne_, {key, dag.integer(-1)}, pos);
  made.score = if_shown(is_key, dag.add(Op::add_, {read, if_shown(visible, made.score)}, pos));
  if (!gather.counts.empty()) {
    const ExprId count = load_at_row(dag, gather.counts, {}, pos);
    const ExprId counted = dag.add(Op::lt_, {dag.leaf(Op::column_), count}, pos);
    const ExprId end = element("list", attention.keys_of_row() + 1, count);
    made.score = dag.add(Op::add_, {end, if_shown(counted, made.score)}, pos);
  }
  made.masks.clear();
  return made;
}

ir::Attention with_rows_as_batches(const ir::Attention& attention) {
  const std::int64_t rows = attention.dims[Dim::Sq], batches = attention.dims[Dim::B];
  ir::Attention masked = attention;
  ExprId visible = masked.dag.boolean(true);
  for (const ExprId mask : masked.masks) {
    visible = mask == masked.masks.front() ? mask : masked.dag.add(Op::and_, {visible, mask});
  }
  const ExprId hidden = masked.dag.real(-std::numeric_limits<double>::infinity());
  if (!masked.masks.empty())
    masked.score = masked.dag.add(Op::select_, {visible, masked.score, hidden});
  masked.masks.clear();
  ir::Attention made = rebuilt(masked,
                               [&](SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
                                   const std::vector<ExprId>&) -> std::optional<ExprId> {
                                 const ir::Node& node = masked.dag[id];
                                 const bool is_batch = node.is(Op::batch_);
                                 if (!is_batch && !node.is(Op::row_)) return std::nullopt;
                                 if ((is_batch ? batches : rows) == 1)
                                   return dag.integer(0, node.pos);
                                 const ExprId both = dag.leaf(Op::batch_, node.pos);
                                 if ((is_batch ? rows : batches) == 1) return both;
                                 return builder.make(is_batch ? Op::floordiv_ : Op::mod_,
                                                     {both, dag.integer(rows)}, node.pos);
                               });
  made.dims.set(Dim::B, batches * rows);
  made.dims.set(Dim::Sq, 1);
  return made;
}

}  // namespace attn::rewrite
