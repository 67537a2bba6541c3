// An attention that is divided among several ranks (GPUs): what each rank computes, and what it
// exchanges with others. What plan files of `attnc compile --ranks` hold besides plans
// (docs/plan-format.md), and all that the runtime knows of it.
//
//   forward    for each stage: inputs[stage] are exchanged, and the stage's parts computed. An
//              exchange needs nothing that is computed, so it may run beside the stages before.
//              After the last part that gives something to another rank, the rank merges these
//              by row, and `results` are exchanged; each home merges what arrives for its rows with
//              its own.
//   backward   the same with backward_inputs and the parts' gradients, given o, lse and do of the
//              whole rows: dq, dk and dv are summed, sent home by `gradients`, and summed there.
//              Gradients of learned tensors are summed over all ranks.
//
// All ranks make the same exchanges in the same order, so none waits for another one in vain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/program.h"
#include "runtime/ranks/intervals.h"

namespace attn::ranks {

// Which dimension of a tensor is divided among ranks.
enum class Divided : std::uint8_t { no, rows, keys };

// A tensor of the whole attention that callers bind: of a rank, the rows or keys at home of all
// heads, [B, H, rows or keys, width] ([B, H, rows] of statistics); captured ones are whole.
struct WholeTensor {
  std::string name;
  plan::TensorRole role = plan::TensorRole::captured;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims{};  // whole, logical order
  Divided divided = Divided::no;

  bool operator==(const WholeTensor&) const = default;
};

// A tensor in a message. f32 for results that are to be merged or summed with others.
struct Payload {
  std::string name;
  DType dtype = DType::f32;

  bool operator==(const Payload&) const = default;
};

// Rows or keys of some tensors, which go to a rank or come from one: one tensor after the other,
// each [B, indices, heads, width], dense, at a multiple of kMessageAlignment bytes.
struct Message {
  int peer = 0;
  Divided of = Divided::rows;  // rows or keys
  std::vector<Payload> tensors;
  Interval key_heads;  // of rows: all query heads that share them
  Intervals indices;

  bool operator==(const Message&) const = default;
};
inline constexpr std::int64_t kMessageAlignment = 256;

// Messages in the order of peers; of one peer, rows first. No two of the same peer and kind. Both
// ends have the message: what one sends, the other one receives.
struct Exchange {
  std::vector<Message> sends, receives;

  bool empty() const { return sends.empty() && receives.empty(); }
  bool operator==(const Exchange&) const = default;
};

// An attention of its own over some rows and some keys, computed by plans of the file.
struct Part {
  int stage = 0;
  Intervals rows, keys;
  std::string forward{}, backward{};  // names of plans; empty: that direction is not compiled
  std::map<std::string, std::string> renamed{};  // tensors of the whole -> their names in the plans
  // Tensors i32 of the plans that hold the numbers of its rows or keys.
  std::map<std::string, Divided> numbers{};

  bool operator==(const Part&) const = default;
};

struct Program {
  int rank = 0;
  Interval key_heads;                             // that it computes
  Intervals rows, keys;                           // at home, of all heads
  std::vector<Part> parts;                        // by stage
  std::vector<Exchange> inputs, backward_inputs;  // by stage
  Exchange results, gradients;

  bool operator==(const Program&) const = default;
};

// A captured tensor or param whose values the division was made for: it is right for these alone.
struct GivenValue {
  std::string name;
  std::string from;  // as written: "@doc.npy"
  std::string hash;  // of the values, in hexadecimal

  bool operator==(const GivenValue&) const = default;
};

inline constexpr int kMostRanks = 1024;

// Ranks r with the same r / groups_of_heads are a team: they have the same parts, each for the key
// heads of group r % groups_of_heads.
struct Division {
  std::string name;
  DType dtype = DType::bf16;
  std::int64_t batches = 1, query_heads = 1, key_heads = 1, rows = 1, keys = 1, width_qk = 1,
               width_v = 1;
  bool sigmoid = false;         // o is the sum of the parts' o; there is no lse
  bool clears_padding = false;  // rows past lengths_q are cleared at home: o = 0, lse = -inf
  int groups_of_heads = 1;
  std::string sharding;                        // in words
  std::vector<WholeTensor> forward, backward;  // that callers bind; backward empty: forward only
  std::vector<plan::ParamInfo> params;
  std::vector<GivenValue> values;
  std::vector<Program> ranks;
  int only = -1;       // the rank whose plans the file has; -1: those of all
  std::string family;  // hash of all that ranks must have the same of

  int teams() const { return static_cast<int>(ranks.size()) / groups_of_heads; }
  Interval key_heads_of(int rank) const;
  int stages() const;  // one more than the last one of any part, 1 or more
  bool operator==(const Division&) const = default;
};

}  // namespace attn::ranks
