#include "tools/drawn.h"

#include <algorithm>
#include <iterator>

#include "compiler/reference/sums.h"

namespace attn::tools {
namespace {

constexpr ir::Dim kHeadDims[] = {ir::Dim::Dqk, ir::Dim::Dv};

bool reads_head_dim(const ir::Attention& attention) {
  const ir::Dag& dag = attention.dag;
  return std::ranges::any_of(ir::reachable(dag, attention.roots()), [&](ir::ExprId id) {
    return dag[id].is(ir::Op::dim_) && std::ranges::any_of(kHeadDims, [&](ir::Dim dim) {
             return dag.symbol_of(id) == to_string(dim);
           });
  });
}

// Not where masks alone are drawn.
bool has_what_is_summed(const ir::Attention& attention, const reference::Bindings& values) {
  std::vector<ir::ExprId> summed;
  for (const ir::KeySum& sum : attention.sums) summed.push_back(sum.value);
  return std::ranges::all_of(ir::reachable(attention.dag, summed), [&](ir::ExprId id) {
    const ir::Node& node = attention.dag[id];
    if (node.is(ir::Op::load_)) return values.tensors.contains(attention.dag.symbol_of(id));
    return !node.is(ir::Op::param_) || values.params.contains(attention.dag.symbol_of(id));
  });
}

}  // namespace

ir::Attention for_picture(const ir::Attention& attention, Needs needs) {
  if (attention.dims.get(ir::Dim::Dqk) && attention.dims.get(ir::Dim::Dv)) return attention;
  ir::Attention drawn = attention;
  drawn.scale = drawn.dag.real(1);
  drawn.sink.reset();
  drawn.dropout.reset();
  if (needs == Needs::masks) drawn.score = drawn.dag.leaf(ir::Op::score_), drawn.sums.clear();
  if (reads_head_dim(drawn)) return attention;
  for (const ir::Dim dim : kHeadDims) {
    if (!drawn.dims.get(dim)) drawn.dims.set(dim, 1);
  }
  return drawn;
}

Result<Drawn> draw_inputs(const ir::Attention& attention, Inputs inputs,
                          const PictureOf& picture_of) {
  auto& [tensors, params] = inputs.values;
  reference::Bindings values{
      {std::move_iterator(tensors.begin()), std::move_iterator(tensors.end())},
      {params.begin(), params.end()}};
  if (has_what_is_summed(attention, values))
    ATTN_RETURN_IF_ERROR(reference::add_sums(attention, values));
  ATTN_ASSIGN(pictures::Picture picture, picture_of(attention, values));
  return Drawn{std::move(picture), std::move(values), std::move(inputs.origins)};
}

}  // namespace attn::tools
