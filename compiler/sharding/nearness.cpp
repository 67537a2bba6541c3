#include "compiler/sharding/nearness.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/sharding/sharding.h"

namespace attn::sharding {
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
