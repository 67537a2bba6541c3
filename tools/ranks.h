// --ranks N: an attention divided among several GPUs, for `explain` and `compile`.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/driver/ranks/shard.h"
#include "runtime/base/status.h"
#include "tools/inputs.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools {

struct RankOptions {
  int ranks = 0;  // 0: --ranks is not given
  std::string link{"nvlink"}, network{"400g"};
  int ranks_of_host = 8;
  InputTexts inputs;
  bool simulates = false;  // so that inputs may also be what masks do not read
};

// --ranks, --link, --network, --ranks-per-host, --in
void add_ranks(CLI::App& command, RankOptions& options);

// Without --ranks, none of the others may be given. Errors: invalid_argument, also for links.
Result<sharding::Links> links_of(const RankOptions& options);

// Largest difference of an element, relative to the largest one, for each result ("o", "dq").
using Differences = std::map<std::string, double>;
struct Simulated {
  Differences differences;
  bool equal = false;  // none is larger than rounding explains
};

using driver::Sharded;

// driver::shard; with --in, for the values of the tensors and params that masks read, which must
// all be given or have a default; without, for any. Other inputs may be given if they are
// simulated. Errors: the same, and those of make_inputs, find_target and links_of.
Result<std::unique_ptr<Sharded>> shard(const Spec& spec, const RankOptions& options,
                                       const std::string& target, bool training = false);

// Runs all ranks' programs on the host, in double, with gradients if the attention has any, and
// compares them with the reference. Takes what the reference takes, twice: says how long that is,
// and refuses what takes more than an hour, unless `yes`. Errors: those of make_inputs, of
// reference::gradients, of sharding::simulate and of Patience.
Result<Simulated> simulate(const Sharded& sharded, const InputTexts& texts, bool yes);

std::string to_text(const Sharded& sharded);
// "0..64, 448..512", or "none".
std::string home_text(const sharding::Intervals& set);
Json to_json(const Sharded& sharded);
// {"doc": {"from": "@ids.npy", "hash": ".."}}
Json inputs_json(const Sharded& sharded);

}  // namespace attn::tools
