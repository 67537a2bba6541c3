// What each rank does, in order: exchanges with other ranks, and the attentions of its parts.
//
//   forward    for each stage: inputs[stage] are exchanged, and the stage's parts computed. An
//              exchange needs nothing that is computed, so it may run beside the stages before.
//              Then the rank merges its parts by row, `results` are exchanged, and each home merges
//              what arrives for its rows.
//   backward   the same with backward_inputs and, of each part, the gradients given lse and delta
//              (the sum of do * o) of the whole rows, which homes compute. Then dq, dk and dv are
//              summed, sent home by `gradients`, and summed there. Gradients of learned tensors are
//              summed over all ranks.
//
// All ranks make the same exchanges in the same order, so none waits for another one in vain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/sharding/sharding.h"

namespace attn::sharding {

// A tensor that is exchanged: [B, heads, rows or keys, width].
struct Carried {
  std::string_view name;
  bool of_rows = true;             // else of keys
  std::optional<ir::Dim> width{};  // 1 if none
};
const Carried& carried(std::string_view name);  // must be one of those below

inline constexpr std::string_view kInputsOfRows[] = {"q"};
inline constexpr std::string_view kInputsOfKeys[] = {"k", "v"};
inline constexpr std::string_view kGradientsOfRows[] = {"dq"};
inline constexpr std::string_view kGradientsOfKeys[] = {"dk", "dv"};
// "q" and "do", and what the softmax of whole rows adds.
std::vector<std::string_view> backward_inputs_of_rows(const ir::Attention& attention);
// "o", and the statistics of rows that merging needs.
std::vector<std::string_view> results_of_rows(const ir::Attention& attention);

// Rows or keys of some tensors, which go to a rank or come from one. In this order: by tensor, then
// [B, heads, indices, width].
struct Message {
  int peer = 0;
  std::vector<std::string_view> tensors;
  Interval key_heads;  // of rows: all query heads that share them
  Intervals indices;

  bool operator==(const Message&) const = default;
};

// In the order of peers; of one peer, rows first.
struct Exchange {
  std::vector<Message> sends, receives;

  bool empty() const { return sends.empty() && receives.empty(); }
};

struct RankProgram {
  int rank = 0;
  Interval key_heads;    // that it computes
  Intervals rows, keys;  // at home, of all heads
  std::vector<Part> parts;
  std::vector<Exchange> inputs, backward_inputs;  // by stage
  Exchange results, gradients;
};

std::vector<RankProgram> rank_programs(const Sharding& sharding, const WorkMap& map,
                                       const ir::Attention& attention);

}  // namespace attn::sharding
