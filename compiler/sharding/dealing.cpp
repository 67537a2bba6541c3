#include "compiler/sharding/dealing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "compiler/sharding/sharding.h"

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

namespace {

constexpr int kMostTeams = 16;
constexpr int kMostChunks = 96;
constexpr int kChunksOfRank = 32;
constexpr int kMostExchanges = 256;
constexpr std::size_t kLongestRun = 8;
constexpr double kEvenWork = 1.01;    // work of the rank with most, of the mean
constexpr double kOfMean = 0.05;      // what the mean of what ranks receive counts
constexpr double kOfUnevenness = 20;  // as all that a rank has at home

using Owners = std::vector<std::size_t>;  // ranks, by chunk

// What chunks of tokens have to do, and which keys they see.
class Tokens {
 public:
  Tokens(const WorkMap& map, const std::vector<bool>& travels, std::size_t chunks)
      : map_(map), chunks_(chunks), work_(chunks), seen_(chunks * chunks) {
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      std::vector<bool> is_seen(static_cast<std::size_t>(map.keys.count()));
      for (std::int64_t row = begin(chunk); row < begin(chunk + 1); ++row) {
        if (travels.empty() || !travels[static_cast<std::size_t>(row)])
          look_at(row, chunk, is_seen);
      }
      for (std::size_t of = 0; of < chunks; ++of) {
        seen_[chunk * chunks + of] = static_cast<float>(
            std::count(is_seen.begin() + begin(of), is_seen.begin() + begin(of + 1), true));
      }
    }
  }

  std::size_t chunks() const { return chunks_; }
  double work(std::size_t chunk) const { return work_[chunk]; }
  // How many blocks of keys of each chunk the rows of this one see.
  const float* seen_by(std::size_t chunk) const { return &seen_[chunk * chunks_]; }
  std::int64_t begin(std::size_t chunk) const {
    return static_cast<std::int64_t>(chunk) * map_.rows.count() /
           static_cast<std::int64_t>(chunks_);
  }
  const Blocks& blocks() const { return map_.rows; }

 private:
  void look_at(std::int64_t row, std::size_t chunk, std::vector<bool>& is_seen) {
    for (std::int64_t key = 0; key < map_.keys.count(); ++key) {
      const float share = map_.at(row, key);
      work_[chunk] += share;
      if (share > 0) is_seen[static_cast<std::size_t>(key)] = true;
    }
  }

  const WorkMap& map_;
  const std::size_t chunks_;
  std::vector<double> work_;
  std::vector<float> seen_;
};

class Search {
 public:
  Search(const Tokens& tokens, std::size_t ranks, Owners owners)
      : tokens_(tokens),
        ranks_(ranks),
        owners_(std::move(owners)),
        loads_(ranks),
        received_(ranks) {
    for (std::size_t chunk = 0; chunk < owners_.size(); ++chunk)
      loads_[owners_[chunk]] += tokens_.work(chunk);
    for (std::size_t rank = 0; rank < ranks; ++rank) received_[rank] = received_by(rank);
    mean_ = std::accumulate(loads_.begin(), loads_.end(), 0.0) / static_cast<double>(ranks);
    at_home_ = static_cast<double>(tokens.blocks().count()) / static_cast<double>(ranks);
  }

  Owners run() {
    for (int i = 0; i < kMostExchanges; ++i) {
      if (!step()) break;
    }
    return std::move(owners_);
  }

 private:
  // Two runs of as many chunks, each of one rank.
  struct Exchange {
    std::size_t x = 0, y = 0, count = 0;
  };

  // Makes the exchange that helps most. Only one of a rank that has most of anything helps.
  bool step() {
    const auto busiest = index_of_most(loads_), farthest = index_of_most(received_);
    double least = cost() * (1 - 1e-9);
    Exchange best;
    for (std::size_t x = 0; x < owners_.size(); ++x) {
      if (owners_[x] != busiest && owners_[x] != farthest) continue;
      for (std::size_t y = 0; y < owners_.size(); ++y) {
        if (owners_[x] == owners_[y]) continue;
        const std::size_t longest = std::min({length_of_run(x), length_of_run(y), kLongestRun});
        for (std::size_t count = 1; count <= longest; ++count) {
          const double cost = cost_after({x, y, count}, least);
          if (cost < least) least = cost, best = {x, y, count};
        }
      }
    }
    if (best.count > 0) make(best);
    return best.count > 0;
  }

  std::size_t length_of_run(std::size_t chunk) const {
    std::size_t end = chunk + 1;
    while (end < owners_.size() && owners_[end] == owners_[chunk]) ++end;
    return end - chunk;
  }

  void make(const Exchange& exchange) {
    const std::size_t from = owners_[exchange.x], to = owners_[exchange.y];
    const double moved = moved_by(exchange);
    loads_[from] -= moved, loads_[to] += moved;
    change_owners(exchange);
    received_[from] = received_by(from), received_[to] = received_by(to);
  }

  void change_owners(const Exchange& exchange) {
    std::swap_ranges(&owners_[exchange.x], &owners_[exchange.x] + exchange.count,
                     &owners_[exchange.y]);
  }

  // Work, from the rank of x to the rank of y.
  double moved_by(const Exchange& exchange) const {
    double moved = 0;
    for (std::size_t i = 0; i < exchange.count; ++i)
      moved += tokens_.work(exchange.x + i) - tokens_.work(exchange.y + i);
    return moved;
  }

  // `least` if it is no less.
  double cost_after(const Exchange& exchange, double least) {
    const std::size_t from = owners_[exchange.x], to = owners_[exchange.y];
    const double moved = moved_by(exchange);
    if (cost_of_work(std::max(loads_[from] - moved, loads_[to] + moved)) >= least) return least;
    const double loads[] = {loads_[from], loads_[to]};
    const double received[] = {received_[from], received_[to]};
    make(exchange);
    const double after = std::max(pieces(from), pieces(to)) > kMostPieces ? least : cost();
    change_owners(exchange);
    loads_[from] = loads[0], loads_[to] = loads[1];
    received_[from] = received[0], received_[to] = received[1];
    return std::min(after, least);
  }

  double cost() const {
    const double most = *std::ranges::max_element(received_);
    const double mean =
        std::accumulate(received_.begin(), received_.end(), 0.0) / static_cast<double>(ranks_);
    return most + kOfMean * mean + cost_of_work(*std::ranges::max_element(loads_));
  }

  double cost_of_work(double most) const {
    const double uneven = mean_ > 0 ? std::max(0.0, most / mean_ - kEvenWork) : 0;
    return kOfUnevenness * uneven * at_home_;
  }

  // Blocks of keys that it sees and has not at home. What several chunks see of one is taken to be
  // what one of them sees.
  double received_by(std::size_t rank) {
    const std::size_t chunks = owners_.size();
    most_.assign(chunks, 0);
    for (std::size_t by = 0; by < chunks; ++by) {
      if (owners_[by] != rank) continue;
      const float* seen = tokens_.seen_by(by);
      for (std::size_t of = 0; of < chunks; ++of) most_[of] = std::max(most_[of], seen[of]);
    }
    double sum = 0;
    for (std::size_t of = 0; of < chunks; ++of) sum += owners_[of] == rank ? 0 : most_[of];
    return sum;
  }

  std::size_t pieces(std::size_t rank) const {
    std::size_t pieces = 0;
    for (std::size_t chunk = 0; chunk < owners_.size(); ++chunk) {
      if (owners_[chunk] == rank && (chunk == 0 || owners_[chunk - 1] != rank)) ++pieces;
    }
    return pieces;
  }

  static std::size_t index_of_most(const std::vector<double>& all) {
    return static_cast<std::size_t>(std::ranges::max_element(all) - all.begin());
  }

  const Tokens& tokens_;
  const std::size_t ranks_;
  Owners owners_;
  std::vector<double> loads_, received_;  // by rank
  double mean_ = 0, at_home_ = 0;
  std::vector<float> most_;  // of received_by, by chunk
};

Dealing dealing_of(const Owners& owners, const Tokens& tokens, int ranks) {
  Dealing dealing{"near their keys", tokens.blocks(), {}, ranks};
  for (std::size_t chunk = 0; chunk < owners.size(); ++chunk) {
    dealing.owners.insert(dealing.owners.end(),
                          static_cast<std::size_t>(tokens.begin(chunk + 1) - tokens.begin(chunk)),
                          static_cast<int>(owners[chunk]));
  }
  return dealing;
}

}  // namespace

std::vector<Dealing> near_dealings(const WorkMap& map, const std::vector<bool>& travels,
                                   int ranks) {
  const auto most = static_cast<int>(map.rows.count() / ranks);
  const int of_rank = std::min({kChunksOfRank, kMostChunks / ranks, most}) / 2 * 2;
  if (ranks < 2 || ranks > kMostTeams || of_rank < 2) return {};
  const auto size = static_cast<std::size_t>(of_rank) * static_cast<std::size_t>(ranks);
  const Tokens tokens(map, travels, size);
  Owners contiguous, folded;
  for (std::size_t chunk = 0; chunk < size; ++chunk) {
    const std::size_t turned = chunk < size / 2 ? chunk : size - 1 - chunk;
    contiguous.push_back(chunk / static_cast<std::size_t>(of_rank));
    folded.push_back(turned / static_cast<std::size_t>(of_rank / 2));
  }
  std::vector<Dealing> all;
  for (const Owners& start : {contiguous, folded}) {
    Search search(tokens, static_cast<std::size_t>(ranks), start);
    all.push_back(dealing_of(search.run(), tokens, ranks));
  }
  return all;
}

}  // namespace attn::sharding
