#include "compiler/engines/native/mask_table.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "compiler/engines/native/expressions.h"
#include "compiler/masks/axes.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;
using masks::Axes;

class TableMaker {
 public:
  explicit TableMaker(const ir::Attention& attention)
      : attention_(attention), dag_(attention.dag), dependence_(attention.dag) {}

  std::optional<rewrite::Hoisted> make() {
    native::MaskTerms terms = native::terms_of_masks(attention_);
    std::vector<ExprId> table, others = std::move(terms.by_indices);
    for (const ExprId term : terms.by_tensors) {
      (is_simple(term) ? others : table).push_back(term);
    }
    if (operations_on(table) < kWorthTable) return std::nullopt;
    rewrite::DerivedTensor derived = tensor_of(table);
    double bytes = 2;
    for (const std::int64_t extent : derived.dims) bytes *= static_cast<double>(extent);
    if (!derived.axes.both_sides() || bytes > kMostTableBytes) return std::nullopt;
    rewrite::Hoisted made{attention_, {}, {}};
    ir::Dag& dag = made.attention.dag;
    for (const ExprId term : table) {
      const bool first = term == table.front();
      derived.expression = first ? term : dag.add(Op::and_, {derived.expression, term});
    }
    others.push_back(declared(derived, made.attention));
    made.attention.masks = std::move(others);
    made.derived.push_back(std::move(derived));
    return made;
  }

 private:
  // Operations of a term that is computed where it is read.
  static constexpr double kSimple = 16;

  bool is_simple(ExprId term) { return operations_on({term}) < kSimple; }

  // Counts what depends on the column: the rest is computed once a row.
  double operations_on(const std::vector<ExprId>& terms) {
    double operations = 0;
    for (const ExprId id : ir::reachable(dag_, terms)) {
      if (dependence_[id].column) operations += cost_of(dag_[id]);
    }
    return operations;
  }

  // Divisions by constants are shifts and products.
  double cost_of(const ir::Node& node) const {
    const bool divides = node.is(Op::floordiv_) || node.is(Op::mod_);
    const bool is_cheap = divides && dag_.is_constant(node.operands[1]);
    return is_cheap ? 2 : rewrite::cost_for_each_score(node);
  }

  rewrite::DerivedTensor tensor_of(const std::vector<ExprId>& terms) {
    rewrite::DerivedTensor derived;
    for (const ExprId term : terms) derived.axes = derived.axes | dependence_[term];
    derived.name = attention_.unused_name("mask_table");
    derived.dtype = DType::bf16;
    const ir::Dims& dims = attention_.dims;
    if (derived.axes.batch) derived.dims.push_back(dims[Dim::B]);
    if (derived.axes.head) derived.dims.push_back(dims[Dim::Hq]);
    derived.dims.insert(derived.dims.end(), {dims[Dim::Sq], dims[Dim::Skv]});
    return derived;
  }

  // The table's element at each score.
  ExprId declared(const rewrite::DerivedTensor& derived, ir::Attention& attention) {
    ir::Dag& dag = attention.dag;
    const ir::SourcePos pos = dag[derived.expression].pos;
    ir::CapturedTensor tensor;
    tensor.name = derived.name;
    tensor.dtype = derived.dtype;
    tensor.pos = pos;
    for (const std::int64_t extent : derived.dims) tensor.extents.push_back(dag.integer(extent));
    attention.tensors.push_back(std::move(tensor));
    std::vector<ExprId> indices;
    if (derived.axes.batch) indices.push_back(dag.leaf(Op::batch_));
    if (derived.axes.head) indices.push_back(dag.leaf(Op::head_));
    indices.insert(indices.end(), {dag.leaf(Op::row_), dag.leaf(Op::column_)});
    const ExprId load = dag.add_symbol(Op::load_, derived.name, ir::Type::real, indices, pos);
    return dag.add(Op::gt_, {load, dag.real(0, pos)}, pos);
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  masks::Dependence dependence_;
};

}  // namespace

std::optional<rewrite::Hoisted> with_mask_table(const ir::Attention& attention) {
  return TableMaker(attention).make();
}

}  // namespace attn::engines
