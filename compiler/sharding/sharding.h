// One attention on several ranks (GPUs): where rows and keys are at home, and which rank computes
// what.
//
// Each score belongs to one part, an attention of its own over some rows and some keys
// (part_attention.h). What a part needs from other ranks' homes is sent there; its results are sent
// to the homes of their rows (or, backward, of their keys), and merged. So every sharding is exact:
//
//   o, lse     of parts of a row: sum of o exp(lse - L), L = log of the sum of exp(lse)
//   dq, dk, dv, learned tensors: sums over parts that know the whole row's lse and sum of do * o
#pragma once

#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/sharding/dealing.h"
#include "compiler/sharding/sets.h"
#include "compiler/sharding/work.h"
#include "runtime/base/status.h"
#include "runtime/ranks/program.h"

namespace attn::sharding {

// Heads are dealt to `groups`; ranks r with the same r / groups are a team, which shares rows and
// keys, and each of it computes the heads of group r % groups. Teams have rows and keys of their
// own.
struct Sharding {
  int ranks = 1;
  int groups = 1;
  // Whether all rows go to where their keys are, instead of keys to where they are seen.
  bool rows_travel = false;
  // Stages in which rows or keys of other teams arrive, after a first stage with the team's own.
  // 0: everything arrives before the first part.
  int arrivals = 0;
  Dealing rows, keys;  // homes
  // Blocks of rows that go to their keys though others do not; empty: none. They see much more than
  // most, so that no rank could compute them alone.
  std::vector<bool> travels{};
  // Parts are cut whose rows see, or whose keys are seen by, more than this on average (0: none).
  std::int64_t most_seen = 0;
  // Whether some rows meet the team's own keys last, beside the results that are sent: gradients
  // of keys, and those of rows that travel. Only where what arrives does so in stages, and without
  // groups of heads, which exchange the results of all rows.
  bool own_last = false;
  // Whether rows that see keys of other teams wait for these, and then meet all keys at once, while
  // other rows begin. Only with one arrival, of keys, and not with own_last.
  bool rows_wait = false;

  bool row_travels(std::int64_t block) const {
    return rows_travel || (!travels.empty() && travels[static_cast<std::size_t>(block)]);
  }
  int teams() const { return ranks / groups; }
  int team_of(int rank) const { return rank / groups; }
  int stages_of_arrivals() const { return teams() > 1 ? arrivals + 1 : 1; }
  // Number of stages, with the one that computes what was left for the end.
  int stages() const { return stages_of_arrivals() + (own_last ? 1 : 0); }
  // The stage in which a team computes with what is at home in another, or in itself.
  int stage_of(int team, int home) const;
  bool is_own_last(int stage) const { return own_last && stage == stages() - 1; }
  Interval key_heads(int rank, const ir::Attention& attention) const;
  // "16 ranks: 4 groups of heads, rows folded, keys arrive in 2 stages"
  std::string to_text() const;
};

// A kernel reads the numbers of its rows or keys from a tensor if they are in more pieces than
// this, and does not know when it is compiled what is hidden: it computes everything.
inline constexpr std::size_t kMostPieces = 4;

// What a GPU's cache holds of keys and values, of one head: blocks of threads that are not at the
// same keys read them from there. An H100 (50 MB) computes 670 TFLOP/s where rows see 64 MiB, and
// 400 where they see three times as much; backward, where keys are seen by as many rows.
inline constexpr double kBytesInCache = 64 << 20;

// ranks::Part plus compiler-only data.
struct Part : ranks::Part {
  bool sink = false;           // it has the sink of its rows: exactly one part of a row has it
  double work = 0;             // blocks of the work map, of all heads
  double longest = 0;          // of a block of rows
  double longest_of_keys = 0;  // of a block of keys
};

// Says of which part it is, before the message: "rows 0..64, keys 0..32, 64..96: ".
Error in_part(const ranks::Part& part, Error error);

// What each rank of the team computes, for its heads. By stage.
std::vector<Part> parts_of(const Sharding& sharding, int team, const WorkMap& map, bool has_sink);

}  // namespace attn::sharding
