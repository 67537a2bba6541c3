// --ranks N: an attention divided among several GPUs, for `explain` and `compile`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/sharding/choose.h"
#include "compiler/sharding/schemes.h"
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
};

// --ranks, --link, --network, --ranks-per-host, --in
void add_ranks(CLI::App& command, RankOptions& options);

// Without --ranks, none of the others may be given. Errors: invalid_argument, also for links.
Result<sharding::Links> links_of(const RankOptions& options);

struct Sharded {
  ir::Attention attention;
  std::string target;
  sharding::WorkMap map;
  sharding::Links links;
  bool known = false;                                        // the inputs that masks read are
  std::vector<std::pair<std::string, std::string>> origins;  // of these
  sharding::Choice choice;
  sharding::Estimate alone;  // one rank with everything
  std::vector<sharding::Scheme> schemes;
};

// With --in, for the values of the tensors and params that masks read; without, for any. Errors:
// those of sharding::check_shardable, make_inputs, find_target and links_of.
Result<std::unique_ptr<Sharded>> shard(const Spec& spec, const RankOptions& options,
                                       const std::string& target);

std::string to_text(const Sharded& sharded);
Json to_json(const Sharded& sharded);

}  // namespace attn::tools
