#include "compiler/masks/padding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/masks/affine.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/mask_analysis.h"

namespace attn::masks {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

// index < end - before
struct Bound {
  Op index = Op::column_;
  ExprId end = 0;
  std::int64_t before = 0;
};

class PaddingFinder {
 public:
  PaddingFinder(const ir::Attention& attention, const target::Context& context)
      : from_(attention), context_(context), found_{attention} {}

  std::optional<Padding> run() && {
    if (!from_.dims.bound() || from_.dims[Dim::Skv] == 0) return std::nullopt;
    // A band around the last diagonal refers to the existing lengths.
    const Band from_end = analyzed(from_, context_)->form().from_end;
    if (from_end.left || from_end.right) return std::nullopt;
    found_.attention.masks.clear();
    for (const ExprId mask : from_.masks) {
      const std::optional<Bound> bound = bound_of(from_.dag[mask]);
      if (bound && is_free(bound->index)) {
        add(*bound, from_.dag[mask].pos);
      } else {
        found_.attention.masks.push_back(mask);
      }
    }
    if (!found_.rows && !found_.columns) return std::nullopt;
    if (found_.rows) declare(ir::kLengthsQ);
    if (found_.columns) declare(ir::kLengthsKv);
    found_.attention.lengths_q |= found_.rows.has_value();
    found_.attention.lengths_kv |= found_.columns.has_value();
    return std::move(found_);
  }

 private:
  bool is_free(Op index) const {
    return index == Op::column_ ? !from_.lengths_kv : !from_.lengths_q && !from_.sink;
  }

  std::optional<Bound> bound_of(const Node& node) const {
    switch (node.op) {
      case Op::lt_: return bound_of(node.operands[0], node.operands[1], 0);
      case Op::le_: return bound_of(node.operands[0], node.operands[1], 1);
      case Op::gt_: return bound_of(node.operands[1], node.operands[0], 0);
      case Op::ge_: return bound_of(node.operands[1], node.operands[0], 1);
      default: return std::nullopt;
    }
  }

  // smaller < larger + more
  std::optional<Bound> bound_of(ExprId smaller, ExprId larger, std::int64_t more) const {
    // Beside an end of 64 bits.
    if (from_.dag[smaller].is(Op::widen_)) smaller = from_.dag[smaller].operands[0];
    const std::optional<Affine> index = affine_of(from_, smaller);
    if (!index || !is_of_batch(larger)) return std::nullopt;
    const std::int64_t before = index->constant - more;
    if (*index == Affine{0, 1, index->constant}) return Bound{Op::column_, larger, before};
    if (*index == Affine{1, 0, index->constant}) return Bound{Op::row_, larger, before};
    return std::nullopt;
  }

  bool is_of_batch(ExprId id) const {
    Dependence depends(from_.dag);
    const Axes axes = depends[id];
    if (axes.head || axes.row || axes.column || from_.dag.is_constant(id)) return false;
    const ExprId roots[] = {id};
    return std::ranges::none_of(ir::reachable(from_.dag, roots), [this](ExprId each) {
      if (!from_.dag[each].is(Op::load_)) return false;
      const std::string& name = from_.dag.symbol_of(each);
      return name == ir::kLengthsQ || name == ir::kLengthsKv;
    });
  }

  // Clamps `end` first, so that end - before cannot leave 32 bits.
  void add(const Bound& bound, ir::SourcePos pos) {
    const bool is_row = bound.index == Op::row_;
    const std::int64_t size = from_.dims[is_row ? Dim::Sq : Dim::Skv];
    ir::Dag& dag = found_.attention.dag;
    const ExprId low = dag.integer(bound.before, pos);
    const ExprId high = dag.integer(std::min<std::int64_t>(bound.before + size, INT32_MAX), pos);
    const bool is_wide = dag[bound.end].type == ir::Type::wide;
    const ExprId given = is_wide ? dag.add(Op::narrow_, {bound.end}, pos) : bound.end;
    const ExprId end = dag.add(Op::min_, {dag.add(Op::max_, {given, low}, pos), high}, pos);
    const ExprId length = bound.before == 0 ? end : dag.add(Op::sub_, {end, low}, pos);
    std::optional<ExprId>& into = is_row ? found_.rows : found_.columns;
    into = into ? dag.add(Op::min_, {*into, length}, pos) : length;
  }

  void declare(std::string_view name) {
    ir::CapturedTensor tensor;
    tensor.name = name;
    tensor.dtype = DType::i32;
    tensor.extents = {found_.attention.dag.integer(from_.dims[Dim::B])};
    tensor.pos = from_.pos;
    found_.attention.tensors.push_back(std::move(tensor));
  }

  const ir::Attention& from_;
  const target::Context& context_;
  Padding found_;
};

}  // namespace

std::optional<Padding> padding(const ir::Attention& attention, const target::Context& context) {
  return PaddingFinder(attention, context).run();
}

}  // namespace attn::masks
