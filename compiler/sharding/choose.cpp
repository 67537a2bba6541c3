#include "compiler/sharding/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/ir/parts.h"
#include "compiler/sharding/draws.h"

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
    if (ranks > 1 && shard == Shard::both && (one || whole)) continue;
    all.push_back(groups);
  }
  return all;
}

// Whether parts of a row's keys can be merged: each has its weights divided by its own sum, and
// none where that is 0.
bool may_divide_keys(const ir::Attention& attention) {
  return !attention.quotient || ir::vanish_together(attention.dag, *attention.quotient);
}

// The sink of a row is in the part that has the team's own keys.
bool has_enough(const ir::Attention& attention, int teams) {
  const std::int64_t rows = attention.dims[Dim::Sq], keys = attention.dims[Dim::Skv];
  return teams == 1 || (std::max(rows, keys) >= teams && (!attention.sink || keys >= teams));
}

bool are_the_same_tokens(const ir::Attention& attention) {
  return attention.dims[Dim::Sq] == attention.dims[Dim::Skv];
}

std::int64_t most_in_cache(const ir::Attention& attention) {
  const ir::Dims& dims = attention.dims;
  const auto bytes = static_cast<double>(size_of(attention.dtype)) *
                     static_cast<double>(dims[Dim::Dqk] + dims[Dim::Dv]);
  return static_cast<std::int64_t>(kBytesInCache / bytes);
}

// The sharding with own keys last; nothing where they may not be.
std::optional<Sharding> with_own_last(Sharding sharding) {
  if (sharding.rows_travel || sharding.arrivals == 0 || sharding.groups > 1) return std::nullopt;
  sharding.own_last = true;
  return sharding;
}

std::optional<Sharding> with_rows_that_wait(Sharding sharding) {
  if (sharding.rows_travel || sharding.teams() == 1) return std::nullopt;
  sharding.arrivals = 1;
  sharding.rows_wait = true;
  return sharding;
}

class Listing {
 public:
  Listing(const ir::Attention& attention, int ranks, const WorkMap& map)
      : attention_(attention), ranks_(ranks), map_(map) {}

  std::vector<Sharding> run() {
    const bool divides = may_divide_keys(attention_);
    for (const int groups : groups_of(attention_, ranks_)) {
      const int teams = ranks_ / groups;
      if (!has_enough(attention_, teams) || (teams > 1 && !divides)) continue;
      if (attention_.dims[Dim::Sq] >= teams) add_rows_at_home(groups, teams);
      if (teams > 1 && !are_the_same_tokens(attention_) && attention_.dims[Dim::Skv] >= teams)
        add_keys_at_home(groups, teams);
    }
    for (Sharding& sharding : all_) sharding.most_seen = most_in_cache(attention_);
    return std::move(all_);
  }

 private:
  void add_rows_at_home(int groups, int teams) {
    std::vector<double> weights = weights_of_rows(map_);
    add_rows_at_home(groups, teams, weights, {});
    const std::vector<bool> heavy = much_heavier(weights);
    if (heavy.empty()) return;
    for (std::size_t row = 0; row < heavy.size(); ++row) {
      if (heavy[row]) weights[row] = 0;  // every team has its part of them
    }
    add_rows_at_home(groups, teams, weights, heavy);
  }

  void add_rows_at_home(int groups, int teams, const std::vector<double>& weights,
                        const std::vector<bool>& travels) {
    std::vector<Dealing> all = dealings_of(map_.rows, weights, teams);
    if (are_the_same_tokens(attention_)) {
      for (Dealing& near : near_dealings(map_, travels, teams)) all.push_back(std::move(near));
    }
    for (const Dealing& dealt : all) {
      const Dealing rows = divided(dealt, groups);
      Dealing keys = rows;
      if (!are_the_same_tokens(attention_)) keys = contiguous(map_.keys, ranks_);
      for (const int arrivals : arrivals_of(teams)) {
        const Sharding sharding{ranks_, groups, false, arrivals, rows, keys, travels};
        all_.push_back(sharding);
        if (arrivals == 0) continue;
        if (const auto last = with_own_last(sharding)) all_.push_back(*last);
        if (arrivals == 1) all_.push_back(*with_rows_that_wait(sharding));
      }
    }
  }

  // Blocks of rows that see much more than most, such as global tokens; empty if there are none, or
  // too many to be sent everywhere.
  static std::vector<bool> much_heavier(const std::vector<double>& weights) {
    constexpr double kMuch = 4;         // of the mean
    constexpr std::ptrdiff_t kFew = 8;  // of all, at most one in so many
    const double mean =
        std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
    std::vector<bool> heavy;
    for (const double weight : weights) heavy.push_back(weight > kMuch * mean);
    const std::ptrdiff_t count = std::ranges::count(heavy, true);
    if (count == 0 || count * kFew > static_cast<std::ptrdiff_t>(heavy.size())) return {};
    return heavy;
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

// The most pieces that the rows (or the keys, if rows travel) of a rank are in.
std::size_t pieces(const Sharding& sharding) {
  std::size_t most = 0;
  for (int rank = 0; rank < sharding.ranks; ++rank) {
    const Dealing& dealing = sharding.rows_travel ? sharding.keys : sharding.rows;
    most = std::max(most, dealing.of(rank).size());
  }
  return most;
}

class Choosing {
 public:
  struct Found {
    Sharding sharding;
    double ms = 0;
    double burden = 0;  // of bytes and pieces
  };

  explicit Choosing(const Estimating& with) : with_(with) {}

  void consider(const Sharding& sharding) {
    const Estimate estimate = sharding::estimate(sharding, with_);
    const auto many = static_cast<double>(pieces(sharding));
    all_.push_back({sharding, time(estimate), estimate.bytes() * (1 + many / kPiecesOfDouble)});
  }

  bool is_empty() const { return all_.empty(); }

  // Shardings that are as fast as the fastest, within what predictions tell, the least burden
  // first. One of each dealing.
  std::vector<Found> best() const {
    double least = all_.front().ms;
    for (const Found& found : all_) least = std::min(least, found.ms);
    std::vector<Found> best;
    for (const Found& found : all_) {
      if (found.ms <= least * kAsFast) best.push_back(found);
    }
    std::ranges::stable_sort(best, {},
                             [](const Found& found) { return std::pair(found.burden, found.ms); });
    std::vector<Found> different;
    for (Found& found : best) {
      const auto is_same = [&](const Found& other) { return is_dealt_as(found, other); };
      if (different.size() < kMostRefined && std::ranges::none_of(different, is_same))
        different.push_back(std::move(found));
    }
    return different;
  }

  Choice choice() const {
    const Found found = best().front();
    return {found.sharding, estimate(found.sharding, with_), static_cast<int>(all_.size())};
  }

  // Instead of the choice, with more parts than it has: the fastest that is worth them.
  void divide_further(const std::vector<Sharding>& all, Choice& choice) const {
    const double before = time(choice.estimate);
    for (const Sharding& sharding : all) {
      ++choice.considered;
      Estimate of_this = estimate(sharding, with_);
      const double ms = time(of_this);
      if (ms * worth(sharding) > before || ms >= time(choice.estimate)) continue;
      choice.sharding = sharding;
      choice.estimate = std::move(of_this);
    }
  }

 private:
  static bool is_dealt_as(const Found& found, const Found& other) {
    const Sharding &x = found.sharding, &y = other.sharding;
    return x.groups == y.groups && x.rows_travel == y.rows_travel &&
           x.rows.owners == y.rows.owners && x.keys.owners == y.keys.owners &&
           x.travels == y.travels;
  }

  // How many times as long the choice must take. A file has room for the plans of a few hundred
  // parts that differ.
  double worth(const Sharding& sharding) const {
    constexpr std::size_t kMany = 250;
    if (sharding.own_last) return kAsFast;
    std::size_t parts = 0;
    for (int team = 0; team < sharding.teams(); ++team)
      parts += parts_of(sharding, team, with_.map, with_.attention.sink.has_value()).size();
    return parts > kMany ? kAsFast : kFaster;
  }

  double time(const Estimate& estimate) const {
    return estimate.forward_ms() + (with_.attention.gradients.empty() ? 0 : estimate.backward_ms());
  }

  static constexpr double kAsFast = 1.02, kFaster = 1.001;
  static constexpr double kPiecesOfDouble = 20;  // as bad as twice the bytes
  static constexpr std::size_t kMostRefined = 2;

  const Estimating& with_;
  std::vector<Found> all_;
};

// Shardings with more arrivals than those that were considered so far.
std::vector<Sharding> refined(const Sharding& sharding) {
  std::vector<Sharding> all;
  for (const int arrivals : {2, 4}) {
    if (sharding.rows_travel || arrivals >= sharding.teams()) continue;
    all.push_back(sharding);
    all.back().arrivals = arrivals;
  }
  return all;
}

std::vector<Sharding> divided_further(const Sharding& sharding) {
  std::vector<Sharding> all;
  for (const auto& further : {with_own_last(sharding), with_rows_that_wait(sharding)}) {
    if (further) all.push_back(*further);
  }
  return all;
}

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
  if (attention.values_of_keys || attention.gather) {
    return Error{ErrorCode::unsupported,
                 attention.gather
                     ? "gathered keys are not divided: lists name those of all ranks"
                     : "values that are a part of k are not divided: ranks exchange k and v",
                 {attention.gather ? "a `mask` says which keys rows see, to ranks too"
                                   : "leave out `values`, and give v as an input"}};
  }
  if (attention.cache) {
    return Error{ErrorCode::unsupported,
                 "keys and values of 8 bits are not divided: ranks pass on keys of one type with q",
                 {"use `dtype bf16;` without `quantize`"}};
  }
  if (attention.prologue_q || attention.prologue_k) {
    return Error{ErrorCode::unsupported,
                 "prologues are not divided: ranks that pass keys on would compute them again",
                 {"compute q and k before, and leave the prologues out"}};
  }
  if (!attention.sums.empty()) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("sums along keys are not divided: ranks would have parts of `{}`",
                    attention.sums.front().tensor.name),
        {"a captured tensor with the same sums, computed before, is divided as others are"}};
  }
  if (!attention.branches.empty() && ranks > 1) {
    return {ErrorCode::unsupported,
            "several attentions in one spec are not sharded: shard each as a spec of its own, and "
            "combine the results"};
  }
  if (attention.epilogue && ranks > 1) {
    return {ErrorCode::unsupported,
            "an attention with an epilogue is not sharded: ranks merge parts of rows, which the "
            "epilogue may only follow; leave it out, and apply it to the result"};
  }
  const ir::Dims& dims = attention.dims;
  if (attention.sink && dims[Dim::Skv] == 0) {
    return {ErrorCode::unsupported,
            "a sink without keys is not divided: ranks compute a row's sink with its keys"};
  }
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
  const bool divides = may_divide_keys(attention);
  bool has_some = false;
  for (const int groups : groups_of(attention, ranks)) {
    const bool has = has_enough(attention, ranks / groups);
    if (has && (groups == ranks || divides)) return {};
    has_some |= has;
  }
  if (has_some) {
    return {ErrorCode::unsupported,
            "keys of this `weight` are not divided: it is not proven to be 0 wherever its term of "
            "the sum is, and keys whose own sum is 0 would be lost; `shard heads;` divides heads"};
  }
  return {ErrorCode::unsupported,
          fmt::format("{} rows and {} keys cannot be divided among {} ranks: some would have none",
                      dims[Dim::Sq], dims[Dim::Skv], ranks)};
}

Estimating estimating(const ir::Attention& attention, const WorkMap& map,
                      const target::Context& context, const Links& links) {
  return {attention, map, Speed(attention, target::in_direction(context, plan::Direction::forward)),
          Speed(attention, target::in_direction(context, plan::Direction::backward)), links};
}

std::vector<Sharding> shardings(const ir::Attention& attention, int ranks, const WorkMap& map) {
  return Listing(attention, ranks, map).run();
}

Result<Choice> choose(const ir::Attention& attention, int ranks, const Estimating& with) {
  ATTN_RETURN_IF_ERROR(check_shardable(attention, ranks));
  Choosing choosing(with);
  Status drawn;  // why the first that cannot be drawn cannot
  for (const Sharding& sharding : shardings(attention, ranks, with.map)) {
    if (sharding.arrivals > 1 || sharding.own_last || sharding.rows_wait) continue;
    Status of_this = check_draws(sharding, with.map, attention);
    if (of_this.ok()) choosing.consider(sharding);
    if (drawn.ok()) drawn = std::move(of_this);
  }
  if (choosing.is_empty()) return drawn.error();
  const auto drawable = [&](std::vector<Sharding> all) {
    std::erase_if(all, [&](const Sharding& sharding) {
      return !check_draws(sharding, with.map, attention).ok();
    });
    return all;
  };
  // How keys arrive matters less than which.
  for (const Choosing::Found& found : choosing.best()) {
    for (const Sharding& sharding : drawable(refined(found.sharding))) choosing.consider(sharding);
  }
  Choice choice = choosing.choice();
  choosing.divide_further(drawable(divided_further(choice.sharding)), choice);
  return choice;
}

}  // namespace attn::sharding
