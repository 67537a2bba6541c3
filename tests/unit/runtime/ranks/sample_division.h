// A causal attention of 64 rows on 4 ranks: 2 teams, folded, of 2 groups of heads each.
#pragma once

#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/tensors.h"

namespace attn::ranks::testing {

inline std::vector<WholeTensor> sample_tensors(const Division& division, bool backward) {
  using enum plan::TensorRole;
  const auto add = [&](std::string_view name, plan::TensorRole role) {
    const bool of_f32 = find_carried(name)->width == Width::one;
    return divided_tensor(name, role, of_f32 ? DType::f32 : division.dtype, division);
  };
  std::vector<WholeTensor> tensors = {add("q", query), add("k", key), add("v", value)};
  const WholeTensor bias{"bias", captured, DType::f32, {division.query_heads}};
  const WholeTensor lengths{"lengths_q", captured, DType::i32, {division.batches}};
  if (backward) {
    tensors.insert(tensors.end(), {add("o", saved),
                                   add("lse", saved),
                                   add("do", cotangent),
                                   bias,
                                   lengths,
                                   add("dq", gradient),
                                   add("dk", gradient),
                                   add("dv", gradient),
                                   {"d_bias", gradient, DType::f32, {division.query_heads}}});
  } else {
    tensors.insert(tensors.end(),
                   {bias, lengths, add("o", output), add("lse", stats), add("sum_exp", stats)});
  }
  return tensors;
}

// Rows 0..16 and 48..64 are at home in team 0. Team 1 is sent keys 0..16, which both see; the keys
// 48..64 are seen by team 0 alone, which is sent keys 16..48 in its second stage.
inline Division sample_division() {
  Division division;
  division.name = "sample";
  division.batches = 2, division.query_heads = 8, division.key_heads = 4;
  division.rows = division.keys = 64;
  division.width_qk = 16, division.width_v = 8;
  division.clears_padding = true;
  division.groups_of_heads = 2;
  division.sharding = "4 ranks";
  division.forward = sample_tensors(division, false);
  division.backward = sample_tensors(division, true);
  division.params = {{"slope", DType::f32}};
  division.values = {{"doc", "@doc.npy", "0123"}};
  division.family = "00ff";
  const Intervals outer = {{0, 16}, {48, 64}}, inner = {{16, 48}};
  for (int rank = 0; rank < 4; ++rank) {
    const bool first = rank < 2;
    Program program;
    program.rank = rank;
    const std::int64_t at = (rank % 2) * 8;
    program.rows =
        first ? Intervals{{at, at + 8}, {at + 48, at + 56}} : Intervals{{2 * at + 16, 2 * at + 32}};
    program.keys = program.rows;
    const std::string forward = rank % 2 == 0 ? "even" : "odd";
    const std::map<std::string, std::string> renamed = {{"lengths_q", "whole_lengths_q"}};
    if (first) {
      program.parts = {
          {0, outer, outer, forward, "back", renamed, {{"row_numbers", Divided::rows}}},
          {1, {{48, 64}}, inner, forward, "back", renamed, {}}};
    } else {
      program.parts = {{0, inner, {{0, 48}}, forward, "back", renamed, {}}};
    }
    division.ranks.push_back(std::move(program));
  }
  for (Program& program : division.ranks) program.key_heads = division.key_heads_of(program.rank);
  add_exchanges(division);
  return division;
}

}  // namespace attn::ranks::testing
