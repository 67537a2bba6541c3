#include "compiler/driver/shape.h"

#include <algorithm>
#include <set>

#include "compiler/ast/parse.h"
#include "compiler/sema/environment.h"

namespace attn::driver {
namespace {

using ir::ExprId;
using ir::Op;
using plan::Dim;

constexpr std::array kPaddable = {ir::Dim::B, ir::Dim::Sq, ir::Dim::Skv};

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

// Whether all other dimensions that the attention knows are known with B, Sq and Skv open.
bool others_are_known(const ir::Attention& open, const ir::Attention& attention) {
  return std::ranges::all_of(ir::kDims, [&](ir::Dim dim) {
    return std::ranges::find(kPaddable, dim) != kPaddable.end() || open.dims.get(dim) ||
           !attention.dims.get(dim);
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

// The size of a dimension, if another one has this size.
std::optional<std::int64_t> size_with(const ast::Spec& spec, sema::Bindings bindings,
                                      ir::Dim wanted, ir::Dim given, std::int64_t size,
                                      diag::Sink& unheard) {
  bindings[std::string(to_string(given))] = std::to_string(size);
  return sema::make_environment(spec, bindings, unheard).dims.get(wanted);
}

// A size that stands for any: a multiple of all numbers up to 16, which divisions of a spec leave
// whole, and of no others that it may have by chance.
constexpr std::int64_t kAnySize = 720'720;

// The dimensions that neither have a size nor follow from those before them.
std::vector<std::string> open_dims(const ast::Spec& spec, sema::Bindings bindings,
                                   diag::Sink& unheard) {
  const auto is_open = [&](ir::Dim dim) {
    return !sema::make_environment(spec, bindings, unheard).dims.get(dim);
  };
  const bool both = is_open(ir::Dim::Dqk) && is_open(ir::Dim::Dv);
  std::vector<std::string> names;
  for (const ir::Dim dim : ir::kDims) {
    if (!is_open(dim)) continue;
    names.emplace_back(both && dim == ir::Dim::Dqk ? "D" : to_string(dim));
    bindings[names.back()] = std::to_string(kAnySize);
  }
  return names;
}

// How many heads of q share one of k and v, if that is so for any number of heads.
std::optional<std::int64_t> group_of(const ast::Spec& spec, const sema::Bindings& bindings,
                                     diag::Sink& unheard) {
  const auto one = size_with(spec, bindings, ir::Dim::Hkv, ir::Dim::Hq, kAnySize, unheard);
  const auto two = size_with(spec, bindings, ir::Dim::Hkv, ir::Dim::Hq, 2 * kAnySize, unheard);
  if (!one || !two || *one <= 0 || *two != 2 * *one || kAnySize % *one != 0) return std::nullopt;
  return kAnySize / *one;
}

// Whether Skv is Sq, for any Sq: also for those that no division leaves whole.
bool is_aligned(const ast::Spec& spec, const sema::Bindings& bindings, diag::Sink& unheard) {
  return std::ranges::all_of(std::array<std::int64_t, 2>{1009, 2003}, [&](std::int64_t prime) {
    return size_with(spec, bindings, ir::Dim::Skv, ir::Dim::Sq, prime, unheard) == prime;
  });
}

}  // namespace

std::optional<ir::Attention> opened(const support::Source& source, sema::Bindings bindings,
                                    std::span<const ir::Dim> dims) {
  const auto is_opened = [&](std::string_view name) {
    const auto named = name == "D" ? ir::Dim::Dqk : ir::parse_dim(name);
    return named && std::ranges::find(dims, *named) != dims.end();
  };
  diag::Sink unheard(source);
  std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return std::nullopt;
  for (ast::Clause& clause : spec->clauses) {
    auto* written = std::get_if<ast::DimsClause>(&clause.body);
    if (!written) continue;
    for (ast::DimEntry& entry : written->entries) {
      if (!is_opened(entry.name.text)) continue;
      entry.size.reset();
      entry.set.clear();
    }
  }
  std::erase_if(bindings, [&](const auto& binding) { return is_opened(binding.first); });
  std::optional<ir::Attention> attention = sema::analyze(*spec, bindings, unheard);
  return unheard.has_errors() ? std::nullopt : std::move(attention);
}

std::vector<plan::Dim> paddable_dims(const support::Source& source, const sema::Bindings& bindings,
                                     const ir::Attention& attention) {
  if (!attention.branches.empty()) return {};  // their keys may be others
  if (attention.gather) return {};             // lists are of given rows
  const std::optional<ir::Attention> open = opened(source, bindings, kPaddable);
  if (!open || !others_are_known(*open, attention) || !tensors_never_shrink(*open)) return {};
  std::vector<plan::Dim> dims;
  const std::set<std::string> read = dims_read(*open);
  for (const ir::Dim dim : kPaddable) {
    if (!read.contains(std::string(to_string(dim)))) dims.push_back(dim);
  }
  return dims;
}

KnownSizes known_sizes(const support::Source& source, const sema::Bindings& bindings) {
  KnownSizes known;
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return known;
  const std::vector<sema::Bindings> variants = sema::variants(*spec, bindings);
  for (const sema::Bindings& variant : variants) {
    const ir::Dims dims = sema::make_environment(*spec, variant, unheard).dims;
    for (const ir::Dim dim : ir::kDims) {
      auto& sizes = known.of[static_cast<std::size_t>(dim)];
      const auto size = dims.get(dim);
      if (size && std::ranges::find(sizes, *size) == sizes.end()) sizes.push_back(*size);
    }
  }
  known.open = open_dims(*spec, variants.front(), unheard);
  known.aligned = is_aligned(*spec, variants.front(), unheard);
  known.group = group_of(*spec, variants.front(), unheard);
  const auto& heads = known.of[static_cast<std::size_t>(ir::Dim::Hq)];
  const auto& shared = known.of[static_cast<std::size_t>(ir::Dim::Hkv)];
  if (!known.group && heads.size() == 1 && shared.size() == 1 && shared.front() > 0) {
    known.group = heads.front() / shared.front();
  }
  return known;
}

plan::Shape shape_of(const ir::Attention& attention, const std::vector<Dim>& paddable,
                     const plan::Program& program) {
  plan::Shape shape;
  for (const Dim dim : plan::kDims) shape.sizes.set(dim, attention.dims[dim]);
  for (const Dim dim : paddable) {
    if (is_controlled(program, dim)) shape.padded.push_back(dim);
  }
  return shape;
}

}  // namespace attn::driver
