#include "tools/drawn.h"

#include <algorithm>
#include <iterator>

#include "compiler/reference/gathered.h"
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

// The attention with a mask of what its lists show, a tensor of booleans, in place of them.
Result<ir::Attention> with_lists_as_mask(const ir::Attention& attention,
                                         reference::Bindings& values) {
  const ir::Dims& dims = attention.dims;
  const std::int64_t batches = dims[ir::Dim::B], rows = dims[ir::Dim::Sq],
                     keys = dims[ir::Dim::Skv];
  constexpr double kMost = 1 << 28;
  if (static_cast<double>(batches * rows) * static_cast<double>(keys) > kMost) {
    return Error{ErrorCode::invalid_argument,
                 "a picture of listed keys has too many scores",
                 {"bind smaller sizes, as in `--bind B=1 --bind Skv=512`"}};
  }
  const std::string name = attention.unused_name("listed");
  io::HostTensor shown{DType::boolean, {batches, rows, keys}, {}};
  shown.values.assign(static_cast<std::size_t>(batches * rows * keys), 0);
  for (std::int64_t row = 0; row < batches * rows; ++row) {
    for (const std::int64_t key :
         reference::listed_keys(attention, values, row / rows, row % rows)) {
      if (key >= 0 && key < keys) shown.values[static_cast<std::size_t>(row * keys + key)] = 1;
    }
  }
  ir::Attention drawn = attention;
  ir::Dag& dag = drawn.dag;
  drawn.tensors.push_back({name,
                           DType::boolean,
                           {dag.integer(batches), dag.integer(rows), dag.integer(keys)},
                           attention.gather->pos});
  const ir::ExprId at[] = {dag.leaf(ir::Op::batch_), dag.leaf(ir::Op::row_),
                           dag.leaf(ir::Op::column_)};
  drawn.masks.push_back(dag.add_symbol(ir::Op::load_, name, ir::Type::boolean, at));
  drawn.gather.reset();
  values.tensors[name] = std::move(shown);
  return drawn;
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
  ir::Attention drawn = attention;
  if (attention.gather) {
    ATTN_ASSIGN(drawn, with_lists_as_mask(attention, values));
  }
  ATTN_ASSIGN(pictures::Picture picture, picture_of(drawn, values));
  return Drawn{std::move(drawn), std::move(picture), std::move(values), std::move(inputs.origins)};
}

}  // namespace attn::tools
