#include "compiler/driver/shape.h"

#include <algorithm>
#include <set>

#include "compiler/ast/parse.h"

namespace attn::driver {
namespace {

using ir::ExprId;
using ir::Op;
using plan::Dim;

constexpr std::array kPaddable = {Dim::B, Dim::Sq, Dim::Skv};

ir::Dim ir_dim(Dim dim) { return *ir::parse_dim(plan::to_string(dim)); }

bool is_paddable(std::string_view name) {
  const auto dim = plan::parse_dim(name);
  return dim && std::ranges::find(kPaddable, *dim) != kPaddable.end();
}

// The attention with B, Sq and Skv left open, whatever the spec and the bindings say.
std::optional<ir::Attention> opened(const support::Source& source, sema::Bindings bindings) {
  diag::Sink unheard(source);
  std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return std::nullopt;
  for (ast::Clause& clause : spec->clauses) {
    auto* dims = std::get_if<ast::DimsClause>(&clause.body);
    if (!dims) continue;
    for (ast::DimEntry& entry : dims->entries) {
      if (!is_paddable(entry.name.text)) continue;
      entry.size.reset();
      entry.set.clear();
    }
  }
  std::erase_if(bindings, [](const auto& binding) { return is_paddable(binding.first); });
  std::optional<ir::Attention> attention = sema::analyze(*spec, bindings, unheard);
  return unheard.has_errors() ? std::nullopt : std::move(attention);
}

bool reads_dims(const ir::Dag& dag, ExprId id) {
  const ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(dag, roots),
                             [&](ExprId one) { return dag[one].is(Op::dim_); });
}

// Whether the expression provably never decreases as a dimension grows.
bool never_shrinks(const ir::Dag& dag, ExprId id) {
  const ir::Node& node = dag[id];
  const auto grows = [&](ExprId operand) { return never_shrinks(dag, operand); };
  const auto is_factor = [&](ExprId operand) {
    return dag[operand].is(Op::const_int_) && dag.integer_of(operand) > 0;
  };
  switch (node.op) {
    case Op::dim_: return true;
    case Op::add_:
    case Op::min_:
    case Op::max_: return std::ranges::all_of(node.operands, grows);
    case Op::sub_: return grows(node.operands[0]) && !reads_dims(dag, node.operands[1]);
    case Op::floordiv_: return grows(node.operands[0]) && is_factor(node.operands[1]);
    case Op::mul_:
      return std::ranges::all_of(node.operands, grows) &&
             std::ranges::count_if(node.operands, [&](ExprId one) { return !is_factor(one); }) <= 1;
    default: return !reads_dims(dag, id);
  }
}

bool tensors_never_shrink(const ir::Attention& attention) {
  return std::ranges::all_of(attention.tensors, [&](const ir::CapturedTensor& tensor) {
    return std::ranges::all_of(tensor.extents,
                               [&](ExprId id) { return never_shrinks(attention.dag, id); });
  });
}

// Whether all dimensions other than B, Sq and Skv are still bound.
bool others_are_bound(const ir::Attention& attention) {
  return std::ranges::all_of(plan::kDims, [&](Dim dim) {
    return is_paddable(plan::to_string(dim)) || attention.dims.get(ir_dim(dim));
  });
}

// The dimensions that the computation reads.
std::set<std::string> dims_read(const ir::Attention& attention) {
  std::vector<ExprId> roots = {attention.scale, attention.score};
  roots.insert(roots.end(), attention.masks.begin(), attention.masks.end());
  if (attention.sink) roots.push_back(*attention.sink);
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  std::set<std::string> names;
  for (const ExprId id : ir::reachable(attention.dag, roots)) {
    if (attention.dag[id].is(Op::dim_)) names.insert(attention.dag.symbol_of(id));
  }
  return names;
}

// Whether lengths that are passed at run time limit the dimension.
bool is_controlled(const plan::Program& program, Dim dim) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(program.tensors, name, &plan::TensorInfo::name) !=
           program.tensors.end();
  };
  const bool rows = has("lengths_q") || has("cu_seqlens_q");
  const bool keys = has("lengths_kv") || has("cu_seqlens_kv");
  if (dim == Dim::Sq) return rows;
  return dim == Dim::Skv ? keys : rows || keys;
}

}  // namespace

plan::Shape shape_of(const support::Source& source, const sema::Bindings& bindings,
                     const ir::Attention& attention, const plan::Program& program) {
  plan::Shape shape;
  for (const Dim dim : plan::kDims) shape.sizes.set(dim, attention.dims[ir_dim(dim)]);
  const std::optional<ir::Attention> open = opened(source, bindings);
  if (!open || !others_are_bound(*open) || !tensors_never_shrink(*open)) return shape;
  const std::set<std::string> read = dims_read(*open);
  for (const Dim dim : kPaddable) {
    const bool is_read = read.contains(std::string(plan::to_string(dim)));
    if (!is_read && is_controlled(program, dim)) shape.padded.push_back(dim);
  }
  return shape;
}

}  // namespace attn::driver
