#include "compiler/driver/divisible.h"

#include <algorithm>
#include <array>

#include "compiler/driver/shape.h"

namespace attn::driver {
namespace {

using ir::ExprId;
using ir::Op;

constexpr std::array kOpened = {ir::Dim::B, ir::Dim::Hq, ir::Dim::Hkv};

bool is_dim(const ir::Dag& dag, ExprId id, std::string_view name) {
  return dag[id].is(Op::dim_) && dag.symbol_of(id) == name;
}

// Whether every extent that depends on the dimension is the dimension.
bool only_whole_extents(const ir::Attention& attention, std::string_view name) {
  const auto is_clean = [&](ExprId extent) {
    const ExprId roots[] = {extent};
    return is_dim(attention.dag, extent, name) ||
           std::ranges::none_of(ir::reachable(attention.dag, roots),
                                [&](ExprId id) { return is_dim(attention.dag, id, name); });
  };
  const auto has_clean = [&](const ir::CapturedTensor& tensor) {
    return std::ranges::all_of(tensor.extents, is_clean);
  };
  return std::ranges::all_of(attention.tensors, has_clean) &&
         std::ranges::all_of(attention.sums, has_clean, &ir::KeySum::tensor);
}

// All expressions but extents, and defaults, which calls replace.
std::vector<ExprId> roots_of_values(ir::Attention attention) {
  for (ir::CapturedTensor& tensor : attention.tensors) {
    tensor.extents.clear();
    tensor.fallback.reset();
  }
  for (ir::KeySum& sum : attention.sums) sum.tensor.extents.clear();
  return attention.roots();
}

// The tensor of a load. Null if it is the row of a prologue, which is one of q or k.
const ir::CapturedTensor* tensor_of(const ir::Attention& attention, ExprId load) {
  return attention.find_tensor(attention.dag.symbol_of(load));
}

// Whether `counter`, the index of the dimension, is read only to index whole dimensions, and the
// size not at all.
bool counts_nothing_else(const ir::Attention& attention, const std::vector<ExprId>& roots,
                         Op counter, std::string_view name) {
  const ir::Dag& dag = attention.dag;
  if (std::ranges::any_of(roots, [&](ExprId id) { return dag[id].is(counter); })) return false;
  for (const ExprId id : ir::reachable(dag, roots)) {
    if (is_dim(dag, id, name)) return false;
    const ir::Node& node = dag[id];
    for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
      if (!dag[node.operands[axis]].is(counter)) continue;
      if (!node.is(Op::load_)) return false;
      const ir::CapturedTensor* const tensor = tensor_of(attention, id);
      if (tensor != nullptr && !is_dim(dag, tensor->extents[axis], name)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<ir::Dim> divisible_dims(const support::Source& source, const sema::Bindings& bindings) {
  const std::optional<ir::Attention> open = opened(source, bindings, kOpened);
  if (!open || open->is_random()) return {};
  if (!open->branches.empty()) return {};  // nothing here looks into branches
  const std::vector<ExprId> roots = roots_of_values(*open);
  std::vector<ir::Dim> dims;
  for (const auto& [dim, counter] :
       {std::pair{ir::Dim::B, Op::batch_}, std::pair{ir::Dim::Hq, Op::head_}}) {
    const std::string_view name = to_string(dim);
    if (only_whole_extents(*open, name) && counts_nothing_else(*open, roots, counter, name))
      dims.push_back(dim);
  }
  return dims;
}

}  // namespace attn::driver
