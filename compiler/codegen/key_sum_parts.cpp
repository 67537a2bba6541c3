#include "compiler/codegen/key_sum_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/codegen/expression_writer.h"

namespace attn::codegen {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

}  // namespace

SumShape::SumShape(const ir::Attention& attention, const ir::KeySum& sum) {
  axes_.batch = sum.of_batch;
  axes_.head = sum.of_head;
  axes_.column = true;
  if (sum.of_batch) dims_.push_back(attention.dims[Dim::B]);
  if (sum.of_head) dims_.push_back(attention.dims[Dim::Hq]);
  dims_.push_back(attention.dims[Dim::Skv]);
}

std::int64_t SumShape::rows() const {
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < dims_.size(); ++axis) rows *= dims_[axis];
  return rows;
}

bool reads_each_once(const ir::Attention& attention, const SumPath& path) {
  const ir::Node& load = attention.dag[path.load];
  const std::pair<Op, Dim> axes[] = {
      {Op::batch_, Dim::B}, {Op::head_, Dim::Hq}, {Op::column_, Dim::Skv}};
  const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(path.load));
  std::set<Op> seen;
  for (std::size_t axis = 0; axis < load.operands.size(); ++axis) {
    const Op op = attention.dag[load.operands[axis]].op;
    const auto* found = std::ranges::find(axes, op, &std::pair<Op, Dim>::first);
    if (found == std::end(axes) || !seen.insert(op).second) return false;
    const auto extent = ir::fold_integer(attention.dag, tensor.extents[axis], attention.dims);
    if (extent != attention.dims[found->second]) return false;
  }
  return seen.size() == SumShape(attention, path.sum).dims().size() && seen.contains(Op::column_);
}

PartsWalk walk_of(const ir::Attention& attention, const SumPath& path) {
  const SumShape shape(attention, path.sum);
  ExpressionWriter writer(attention);
  writer.begin(shape.axes(), shape.dims());
  const std::string local = writer.value(path.local);
  const std::vector<ExprId>& indexes = attention.dag[path.load].operands;
  for (const ExprId index : indexes) (void)writer.value(index);
  const std::string element = writer.element(path.load);
  std::vector<ExprId> read = {path.local};
  read.insert(read.end(), indexes.begin(), indexes.end());
  return {.rows = shape.rows(),
          .columns = shape.keys(),
          .part_at = fmt::format(
              "    const long long i = local * {} + c;\n    const double cotangent = onward[i];\n"
              "    if (cotangent == 0) return false;\n{}    element = {};\n"
              "    part = cotangent * {};\n",
              shape.keys(), writer.statements(4), element, local),
          .inputs = inputs_of(attention, read),
          .reads = {{path.onward, DType::f32, "onward"}},
          .source = ir::to_source(attention, path.load)};
}

}  // namespace attn::codegen
