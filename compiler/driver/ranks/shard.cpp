#include "compiler/driver/ranks/shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/engines/shared/checks.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/planner/search.h"
#include "compiler/sharding/part_attention.h"
#include "compiler/target/gpu.h"

namespace attn::driver {
namespace {

sharding::Sharding alone(const sharding::WorkMap& map) {
  return {1, 1, false, 0, sharding::contiguous(map.rows, 1), sharding::contiguous(map.keys, 1)};
}

// sharding::check_shardable, with a note of the next smaller number that is possible.
Status check_number(const ir::Attention& attention, int ranks) {
  Status status = sharding::check_shardable(attention, ranks);
  if (status.ok() || status.error().code != ErrorCode::unsupported) return status;
  Error error = status.error();
  for (int fewer = ranks - 1; fewer > 1; --fewer) {
    if (!sharding::check_shardable(attention, fewer).ok()) continue;
    error.notes.push_back(fmt::format("{} ranks are possible", fewer));
    break;
  }
  return error;
}

// What each rank has to compute is not more than what one GPU may have to, and bytes of all ranks
// can be counted.
Status check_sizes_of_rank(const ir::Attention& attention, int ranks) {
  ir::Attention share = attention;
  ir::Dims& dims = share.dims;
  const ir::Dim divided = dims[ir::Dim::Sq] < dims[ir::Dim::Skv] ? ir::Dim::Skv : ir::Dim::Sq;
  dims.set(divided, std::max<std::int64_t>(1, dims[divided] / ranks));
  const Status status = engines::check_sizes(share);
  if (status.ok()) return engines::check_tensors(attention);
  if (ranks == 1) return status;
  Error error = status.error();
  error.message = fmt::format("on each of {} ranks, {}", ranks, error.message);
  return error;
}

// Checks random dropout by the part of the first team that has most work: attnc's own kernels draw
// the numbers of parts, or none do. What they refuse for one part holds for the others.
Status check_kernels(const Sharded& sharded, const target::Context& context) {
  const ir::Attention& whole = sharded.attention;
  const sharding::Sharding& dealt = sharded.choice.sharding;
  if (!whole.is_random() || dealt.ranks == 1) return {};
  const std::vector<sharding::Part> parts =
      sharding::parts_of(dealt, 0, sharded.map, whole.sink.has_value());
  if (parts.empty()) return {};
  const sharding::Part& part = *std::ranges::max_element(parts, {}, &sharding::Part::work);
  const ir::Attention attention =
      sharding::part_attention(whole, part, dealt.key_heads(0, whole)).attention;
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    if (direction == plan::Direction::backward && !sharded.trains()) continue;
    planner::Search search(attention, planner::kAnyLowering,
                           target::in_direction(context, direction));
    if (const auto best = search.next(); !best.ok()) return in_part(part, best.error());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Sharded>> shard(const ir::Attention& attention,
                                       const ShardOptions& options) {
  ATTN_RETURN_IF_ERROR(check_number(attention, options.ranks));
  ATTN_RETURN_IF_ERROR(check_sizes_of_rank(attention, options.ranks));
  auto sharded = std::make_unique<Sharded>();
  sharded->attention = attention;
  if (options.training && attention.gradients.empty())
    sharded->attention.gradients = gradient::wanted_gradients(attention);
  sharded->target = options.target.name;
  sharded->links = options.links;
  sharded->known = options.known != nullptr;
  sharded->inputs = options.inputs;
  sharded->map = sharding::work_map(attention, options.ranks, options.known);
  const target::Context context{.gpu = target::gpu_of(options.target),
                                .analyses = options.analyses};
  const sharding::Estimating with =
      sharding::estimating(sharded->attention, sharded->map, context, options.links);
  ATTN_ASSIGN(sharded->choice, sharding::choose(sharded->attention, options.ranks, with));
  ATTN_RETURN_IF_ERROR(check_kernels(*sharded, {.gpu = context.gpu}));
  sharded->alone = sharding::estimate(alone(sharded->map), with);
  sharded->schemes = sharding::classic_schemes(options.ranks, with);
  return sharded;
}

}  // namespace attn::driver
