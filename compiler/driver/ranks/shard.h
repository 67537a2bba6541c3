// An attention divided among several GPUs: how, and what it takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks_of_values/known_values.h"
#include "compiler/sharding/choose.h"
#include "compiler/sharding/schemes.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::driver {

struct Sharded {
  ir::Attention attention;
  std::string target;
  sharding::WorkMap map;
  sharding::Links links;
  bool known = false;  // the inputs that masks read are
  struct Input {
    std::string name, origin, hash;  // of its values, in hexadecimal
  };
  std::vector<Input> inputs;  // these
  sharding::Choice choice;
  sharding::Estimate alone;  // one rank with everything
  std::vector<sharding::Scheme> schemes;

  bool trains() const { return !attention.gradients.empty(); }
};

struct ShardOptions {
  int ranks = 1;
  sharding::Links links;
  plan::Target target;
  const masks_of_values::KnownValues* known = nullptr;  // that masks read; null: not known
  std::vector<Sharded::Input> inputs{};                 // these
  bool training = false;  // for forward and backward, also without a `grad` clause
  masks::MaskAnalyses* analyses = nullptr;
};

// Divides the attention: for the known values, or for any. Errors: those of
// sharding::check_shardable, with the next smaller number of ranks that is possible;
// invalid_argument; unsupported for sizes of a rank that one GPU has not, and for random dropout
// that attnc's own kernels cannot draw.
Result<std::unique_ptr<Sharded>> shard(const ir::Attention& attention, const ShardOptions& options);

}  // namespace attn::driver
