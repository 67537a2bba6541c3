#include "compiler/sharding/choose.h"

#include <fmt/format.h>

#include <tuple>

namespace attn::sharding {
namespace {

using ir::Dim;
using ir::Shard;

std::vector<int> groups_of(const ir::Attention& attention, int ranks) {
  std::vector<int> all;
  for (int groups = 1; groups <= ranks; ++groups) {
    if (ranks % groups != 0 || attention.dims[Dim::Hkv] % groups != 0) continue;
    const bool whole = groups == ranks, one = groups == 1;
    const std::optional<Shard> shard = attention.shard;
    if (ranks > 1 && shard == Shard::sequence && !one) continue;
    if (ranks > 1 && shard == Shard::heads && !whole) continue;
    if (shard == Shard::both && (one || whole)) continue;
    all.push_back(groups);
  }
  return all;
}

bool has_enough(const ir::Attention& attention, int teams) {
  return std::max(attention.dims[Dim::Sq], attention.dims[Dim::Skv]) >= teams;
}

bool are_the_same_tokens(const ir::Attention& attention) {
  return attention.dims[Dim::Sq] == attention.dims[Dim::Skv];
}

class Listing {
 public:
  Listing(const ir::Attention& attention, int ranks, const WorkMap& map)
      : attention_(attention), ranks_(ranks), map_(map) {}

  std::vector<Sharding> run() {
    for (const int groups : groups_of(attention_, ranks_)) {
      const int teams = ranks_ / groups;
      if (!has_enough(attention_, teams)) continue;
      if (attention_.dims[Dim::Sq] >= teams) add_rows_at_home(groups, teams);
      if (teams > 1 && !are_the_same_tokens(attention_) && attention_.dims[Dim::Skv] >= teams)
        add_keys_at_home(groups, teams);
    }
    return std::move(all_);
  }

 private:
  void add_rows_at_home(int groups, int teams) {
    for (const Dealing& dealt : dealings_of(map_.rows, weights_of_rows(map_), teams)) {
      const Dealing rows = divided(dealt, groups);
      Dealing keys = rows;
      if (!are_the_same_tokens(attention_)) keys = contiguous(map_.keys, ranks_);
      for (const int arrivals : arrivals_of(teams))
        all_.push_back({ranks_, groups, false, arrivals, rows, keys});
    }
  }

  void add_keys_at_home(int groups, int teams) {
    for (const Dealing& dealt : dealings_of(map_.keys, weights_of_keys(map_), teams)) {
      all_.push_back(
          {ranks_, groups, true, 1, contiguous(map_.rows, ranks_), divided(dealt, groups)});
    }
  }

  static std::vector<Dealing> dealings_of(const Blocks& blocks, const std::vector<double>& weights,
                                          int teams) {
    if (teams == 1) return {contiguous(blocks, 1)};
    return dealings(blocks, weights, teams);
  }

  static std::vector<int> arrivals_of(int teams) {
    std::vector<int> all = {0};
    for (const int arrivals : {1, 2, 4}) {
      if (arrivals < teams) all.push_back(arrivals);
    }
    return all;
  }

  const ir::Attention& attention_;
  const int ranks_;
  const WorkMap& map_;
  std::vector<Sharding> all_;
};

}  // namespace

Status check_shardable(const ir::Attention& attention, int ranks) {
  if (ranks < 1 || ranks > kMostRanks) {
    return {ErrorCode::invalid_argument,
            fmt::format("{} ranks: from 1 to {} are possible", ranks, kMostRanks)};
  }
  for (const Dim dim : ir::kDims) {
    if (attention.dims.get(dim)) continue;
    return {ErrorCode::invalid_argument,
            fmt::format("the dimension {0} is open; set it with --bind {0}=SIZE", to_string(dim))};
  }
  if (attention.quantize) {
    return {ErrorCode::unsupported,
            "8-bit attention is not sharded: each part would round its weights relative to a "
            "maximum of its own, and the result would be another one"};
  }
  const ir::Dims& dims = attention.dims;
  if (attention.shard == Shard::heads && dims[Dim::Hkv] % ranks != 0) {
    return {ErrorCode::unsupported,
            fmt::format("`shard heads`: {} key heads cannot be divided among {} ranks",
                        dims[Dim::Hkv], ranks)};
  }
  if (attention.shard == Shard::both && groups_of(attention, ranks).empty()) {
    return {ErrorCode::unsupported,
            fmt::format("`shard both`: no number of groups above 1 and below {0} divides {0} ranks "
                        "and {1} key heads",
                        ranks, dims[Dim::Hkv])};
  }
  for (const int groups : groups_of(attention, ranks)) {
    if (has_enough(attention, ranks / groups)) return {};
  }
  return {ErrorCode::unsupported,
          fmt::format("{} rows and {} keys cannot be divided among {} ranks: some would have none",
                      dims[Dim::Sq], dims[Dim::Skv], ranks)};
}

Estimating estimating(const ir::Attention& attention, const WorkMap& map,
                      const planning::Context& context, const Links& links) {
  return {attention, map,
          Speed(attention, planning::in_direction(context, plan::Direction::forward)),
          Speed(attention, planning::in_direction(context, plan::Direction::backward)), links};
}

std::vector<Sharding> shardings(const ir::Attention& attention, int ranks, const WorkMap& map) {
  return Listing(attention, ranks, map).run();
}

Result<Choice> choose(const ir::Attention& attention, int ranks, const Estimating& with) {
  ATTN_RETURN_IF_ERROR(check_shardable(attention, ranks));
  const bool trains = !attention.gradients.empty();
  const auto costs = [trains](const Estimate& estimate) {
    return std::tuple(estimate.forward_ms() + (trains ? estimate.backward_ms() : 0),
                      estimate.bytes());
  };
  std::optional<Choice> best;
  int considered = 0;
  for (Sharding& sharding : shardings(attention, ranks, with.map)) {
    Estimate estimate = sharding::estimate(sharding, with);
    ++considered;
    if (best && costs(estimate) >= costs(best->estimate)) continue;
    best = Choice{std::move(sharding), std::move(estimate)};
  }
  if (!best) return {ErrorCode::internal, "no sharding was found"};
  best->considered = considered;
  return std::move(*best);
}

}  // namespace attn::sharding
