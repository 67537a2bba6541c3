#include "compiler/sharding/rank_program.h"

#include <algorithm>
#include <set>

#include "compiler/gradient/differentiate.h"
#include "compiler/sharding/part_attention.h"
#include "runtime/ranks/tensors.h"

namespace attn::sharding {
namespace {

using ir::Dim;
using plan::TensorRole;
using ranks::Divided;
using ranks::WholeTensor;
using Tensors = std::vector<WholeTensor>;

// Captured tensors that the attention reads, in its order, and what random dropout reads.
Tensors captured_of(const ir::Attention& attention) {
  std::set<std::string, std::less<>> read;
  for (const ir::ExprId id : ir::reachable(attention.dag, attention.roots())) {
    if (attention.dag[id].is(ir::Op::load_)) read.insert(attention.dag.symbol_of(id));
  }
  if (attention.lengths_q) read.emplace(ir::kLengthsQ);
  if (attention.lengths_kv) read.emplace(ir::kLengthsKv);
  Tensors tensors;
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (!read.contains(tensor.name)) continue;
    WholeTensor& whole =
        tensors.emplace_back(WholeTensor{tensor.name, TensorRole::captured, tensor.dtype});
    for (const ir::ExprId extent : tensor.extents)
      whole.dims.push_back(*ir::fold_integer(attention.dag, extent, attention.dims));
  }
  if (!attention.is_random()) return tensors;
  for (const char* name : {"seed", "offset"})
    tensors.push_back({name, TensorRole::control, DType::i64, {1}});
  return tensors;
}

Tensors forward_of(const ir::Attention& attention, const ranks::Division& division) {
  const auto tensor = [&](std::string_view name, TensorRole role, DType dtype) {
    return ranks::divided_tensor(name, role, dtype, division);
  };
  Tensors tensors = {tensor("q", TensorRole::query, attention.dtype),
                     tensor("k", TensorRole::key, attention.dtype),
                     tensor("v", TensorRole::value, attention.dtype)};
  const Tensors captured = captured_of(attention);
  tensors.insert(tensors.end(), captured.begin(), captured.end());
  tensors.push_back(tensor("o", TensorRole::output, attention.dtype));
  if (!attention.is_pointwise()) tensors.push_back(tensor("lse", TensorRole::stats, DType::f32));
  for (const ir::Output& output : ir::kOutputs) {
    const bool is_other = output.name != "o" && output.name != "lse" && !ir::is_amax(output.name);
    if (is_other && attention.*output.wanted)
      tensors.push_back(tensor(output.name, TensorRole::stats, DType::f32));
  }
  return tensors;
}

Tensors backward_of(const ir::Attention& attention, const ranks::Division& division) {
  const auto tensor = [&](std::string_view name, TensorRole role, DType dtype) {
    return ranks::divided_tensor(name, role, dtype, division);
  };
  const DType dtype = attention.dtype;
  Tensors tensors = {tensor("q", TensorRole::query, dtype), tensor("k", TensorRole::key, dtype),
                     tensor("v", TensorRole::value, dtype)};
  if (!attention.is_pointwise()) {
    tensors.push_back(tensor("o", TensorRole::saved, dtype));
    tensors.push_back(tensor("lse", TensorRole::saved, DType::f32));
  }
  tensors.push_back(tensor("do", TensorRole::cotangent, dtype));
  if (attention.reads_d_lse) tensors.push_back(tensor("dlse", TensorRole::cotangent, DType::f32));
  const Tensors captured = captured_of(attention);
  tensors.insert(tensors.end(), captured.begin(), captured.end());
  const std::vector<std::string> gradients = gradient::wanted_gradients(attention);
  for (const char* name : {"q", "k", "v"}) {
    if (std::ranges::find(gradients, name) != gradients.end())
      tensors.push_back(tensor(std::string("d") + name, TensorRole::gradient, dtype));
  }
  for (const WholeTensor& whole : captured) {
    if (std::ranges::find(gradients, whole.name) == gradients.end()) continue;
    tensors.push_back({"d_" + whole.name, TensorRole::gradient, whole.dtype, whole.dims});
  }
  return tensors;
}

// The runtime's form of a part: what it reads besides tensors of the whole.
ranks::Part runtime_part(const Part& part, const ir::Attention& attention,
                         const ranks::Interval& key_heads) {
  const PartAttention made = part_attention(attention, part, key_heads);
  ranks::Part as = part;
  as.renamed = made.renamed;
  for (const auto& [name, of] : made.numbers) as.numbers[name] = of.of;
  return as;
}

}  // namespace

ranks::Division frame_of(const ir::Attention& attention) {
  const ir::Dims& dims = attention.dims;
  ranks::Division division;
  division.name = attention.name;
  division.dtype = attention.dtype;
  division.batches = dims[Dim::B];
  division.query_heads = dims[Dim::Hq];
  division.key_heads = dims[Dim::Hkv];
  division.rows = dims[Dim::Sq];
  division.keys = dims[Dim::Skv];
  division.width_qk = dims[Dim::Dqk];
  division.width_v = dims[Dim::Dv];
  division.sigmoid = attention.is_pointwise();
  // Without a sink, rows whose masks hide everything are zero by themselves.
  division.clears_padding = attention.lengths_q && attention.sink.has_value();
  division.forward = forward_of(attention, division);
  division.backward = backward_of(attention, division);
  for (const ir::Param& param : attention.params)
    division.params.push_back({param.name, param.dtype});
  return division;
}

RankPrograms rank_programs(const Sharding& sharding, const WorkMap& map,
                           const ir::Attention& attention) {
  RankPrograms made{frame_of(attention), {}};
  ranks::Division& division = made.division;
  division.groups_of_heads = sharding.groups;
  division.sharding = sharding.to_text();
  for (int team = 0; team < sharding.teams(); ++team)
    made.of_teams.push_back(parts_of(sharding, team, map, attention.sink.has_value()));
  std::vector<ranks::Part> parts;
  for (int rank = 0; rank < sharding.ranks; ++rank) {
    const Interval key_heads = sharding.key_heads(rank, attention);
    if (rank % sharding.groups == 0) {
      parts.clear();
      for (const Part& part : made.parts_of(rank))
        parts.push_back(runtime_part(part, attention, key_heads));
    }
    division.ranks.push_back(
        {rank, key_heads, sharding.rows.of(rank), sharding.keys.of(rank), parts, {}, {}, {}, {}});
  }
  return made;
}

}  // namespace attn::sharding
