#include "compiler/sharding/dealing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <tuple>

namespace attn::sharding {
namespace {

// Largest work, as a multiple of the mean, that is not made more even. More exchanges need more
// keys.
constexpr double kEven[] = {1.01, 1.06};
constexpr int kMostSwaps = 4096;

// Chunks of blocks, as many for each rank, as equal as blocks allow.
struct Chunks {
  const Blocks& blocks;
  std::int64_t of_rank;
  int ranks;

  std::int64_t count() const { return of_rank * ranks; }
  std::int64_t begin(std::int64_t chunk) const { return chunk * blocks.count() / count(); }
};

Dealing make(std::string_view name, const Chunks& chunks, const std::vector<int>& owners) {
  Dealing dealing{name, chunks.blocks, {}, chunks.ranks};
  for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
    dealing.owners.insert(dealing.owners.end(),
                          static_cast<std::size_t>(chunks.begin(chunk + 1) - chunks.begin(chunk)),
                          owners[static_cast<std::size_t>(chunk)]);
  }
  return dealing;
}

std::vector<double> sums(const Chunks& chunks, const std::vector<double>& weights) {
  std::vector<double> sums;
  for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
    sums.push_back(std::accumulate(weights.begin() + chunks.begin(chunk),
                                   weights.begin() + chunks.begin(chunk + 1), 0.0));
  }
  return sums;
}

// Forth and back, so that the first rank's chunks are the first and the last of each turn.
Dealing folded(const Chunks& chunks) {
  std::vector<int> owners;
  const std::int64_t turn = 2 * chunks.ranks;
  for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk)
    owners.push_back(static_cast<int>(std::min(chunk % turn, turn - 1 - chunk % turn)));
  return make("folded", chunks, owners);
}

Dealing striped(const Chunks& chunks) {
  std::vector<int> owners;
  for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk)
    owners.push_back(static_cast<int>(chunk % chunks.ranks));
  return make("striped", chunks, owners);
}

// Longest processing time first, with as many chunks for each rank.
Dealing balanced(const Chunks& chunks, const std::vector<double>& weights) {
  const std::vector<double> work = sums(chunks, weights);
  std::vector<std::int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t x, std::int64_t y) {
    return work[static_cast<std::size_t>(x)] > work[static_cast<std::size_t>(y)];
  });
  using Load = std::tuple<double, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int rank = 0; rank < chunks.ranks; ++rank) least.emplace(0.0, rank);
  std::vector<std::int64_t> taken(static_cast<std::size_t>(chunks.ranks));
  std::vector<int> owners(work.size());
  for (const std::int64_t chunk : order) {
    const auto [load, rank] = least.top();
    least.pop();
    owners[static_cast<std::size_t>(chunk)] = rank;
    if (++taken[static_cast<std::size_t>(rank)] < chunks.of_rank)
      least.emplace(load + work[static_cast<std::size_t>(chunk)], rank);
  }
  return make("balanced", chunks, owners);
}

// Swaps chunks of a contiguous dealing: the rank that has most and the one that has least exchange
// the chunks that bring both nearest to each other. What stays together needs the same keys.
class Swapping {
 public:
  Swapping(const Chunks& chunks, const std::vector<double>& weights)
      : chunks_(chunks),
        work_(sums(chunks, weights)),
        of_rank_(static_cast<std::size_t>(chunks.ranks)),
        loads_(static_cast<std::size_t>(chunks.ranks)) {
    const Dealing first = contiguous({chunks.count(), 1}, chunks.ranks);
    owners_ = first.owners;
    for (std::size_t chunk = 0; chunk < owners_.size(); ++chunk) {
      of_rank_[owner(chunk)].push_back(chunk);
      loads_[owner(chunk)] += work_[chunk];
    }
  }

  Dealing run(double even) {
    const double mean = std::accumulate(loads_.begin(), loads_.end(), 0.0) / chunks_.ranks;
    for (int i = 0; i < kMostSwaps; ++i) {
      const auto [least, most] = std::ranges::minmax_element(loads_);
      if (*most <= mean * even || !swap(most - loads_.begin(), least - loads_.begin())) break;
    }
    return make("swapped", chunks_, owners_);
  }

 private:
  std::size_t owner(std::size_t chunk) const { return static_cast<std::size_t>(owners_[chunk]); }

  // False if no exchange helps.
  bool swap(std::ptrdiff_t from, std::ptrdiff_t to) {
    auto &heavy = of_rank_[static_cast<std::size_t>(from)],
         &light = of_rank_[static_cast<std::size_t>(to)];
    double& most = loads_[static_cast<std::size_t>(from)];
    double& least = loads_[static_cast<std::size_t>(to)];
    const double gap = most - least;
    double best = gap * (1 - 1e-9);
    std::size_t *give = nullptr, *take = nullptr;
    for (std::size_t& x : heavy) {
      for (std::size_t& y : light) {
        const double left = std::abs(gap - 2 * (work_[x] - work_[y]));
        if (left < best) best = left, give = &x, take = &y;
      }
    }
    if (!give) return false;
    const double moved = work_[*give] - work_[*take];
    most -= moved, least += moved;
    std::swap(owners_[*give], owners_[*take]);
    std::swap(*give, *take);
    return true;
  }

  const Chunks& chunks_;
  std::vector<double> work_;
  std::vector<int> owners_;
  std::vector<std::vector<std::size_t>> of_rank_;
  std::vector<double> loads_;
};

// The weight of the rank with most, of the mean.
double imbalance(const Dealing& dealing, const std::vector<double>& weights) {
  std::vector<double> loads(static_cast<std::size_t>(dealing.ranks));
  for (std::size_t block = 0; block < weights.size(); ++block)
    loads[static_cast<std::size_t>(dealing.owners[block])] += weights[block];
  const double all = std::accumulate(loads.begin(), loads.end(), 0.0);
  return all > 0 ? *std::ranges::max_element(loads) * dealing.ranks / all : 1;
}

}  // namespace

Intervals Dealing::of(int rank) const {
  Intervals set;
  for (const std::int64_t block : blocks_of(rank)) append(set, blocks.of(block));
  return set;
}

std::vector<std::int64_t> Dealing::blocks_of(int rank) const {
  std::vector<std::int64_t> all;
  for (std::size_t block = 0; block < owners.size(); ++block) {
    if (owners[block] == rank) all.push_back(static_cast<std::int64_t>(block));
  }
  return all;
}

Dealing contiguous(const Blocks& blocks, int ranks) {
  Dealing dealing{"contiguous", blocks, {}, ranks};
  for (std::int64_t block = 0; block < blocks.count(); ++block)
    dealing.owners.push_back(static_cast<int>(block * ranks / blocks.count()));
  return dealing;
}

std::vector<Dealing> dealings(const Blocks& blocks, const std::vector<double>& weights, int ranks) {
  std::vector<Dealing> all = {contiguous(blocks, ranks)};
  // What is even already cannot be dealt better, and needs the fewest keys.
  if (imbalance(all.front(), weights) <= kEven[0]) return all;
  for (const std::int64_t chunks_of_rank : {2, 4, 8, 16}) {
    const Chunks chunks{blocks, chunks_of_rank, ranks};
    if (chunks.count() > blocks.count()) break;
    all.push_back(folded(chunks));
    all.push_back(balanced(chunks, weights));
    for (const double even : kEven) all.push_back(Swapping(chunks, weights).run(even));
    if (chunks_of_rank > 2) all.push_back(striped(chunks));
  }
  return all;
}

Dealing divided(const Dealing& dealing, int parts) {
  Dealing result = dealing;
  result.ranks = dealing.ranks * parts;
  for (int rank = 0; rank < dealing.ranks; ++rank) {
    const std::vector<std::int64_t> own = dealing.blocks_of(rank);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto part = static_cast<int>(i * static_cast<std::size_t>(parts) / own.size());
      result.owners[static_cast<std::size_t>(own[i])] = rank * parts + part;
    }
  }
  return result;
}

std::vector<double> weights_of_rows(const WorkMap& map) {
  std::vector<double> weights;
  for (std::int64_t row = 0; row < map.rows.count(); ++row) {
    weights.push_back(std::accumulate(map.shares.begin() + row * map.keys.count(),
                                      map.shares.begin() + (row + 1) * map.keys.count(), 0.0));
  }
  return weights;
}

std::vector<double> weights_of_keys(const WorkMap& map) {
  std::vector<double> weights(static_cast<std::size_t>(map.keys.count()));
  for (std::int64_t row = 0; row < map.rows.count(); ++row) {
    for (std::int64_t key = 0; key < map.keys.count(); ++key)
      weights[static_cast<std::size_t>(key)] += map.at(row, key);
  }
  return weights;
}

}  // namespace attn::sharding
