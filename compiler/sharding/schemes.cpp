#include "compiler/sharding/schemes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace attn::sharding {
namespace {

using ir::Dim;

// Rows and keys of each rank, and what each has to do with the keys of each other one.
class Rows {
 public:
  Rows(const Dealing& rows, const Dealing& keys, const Estimating& with)
      : ranks_(rows.ranks), rows_(rows), keys_(keys), with_(with) {
    const auto size = static_cast<std::size_t>(ranks_);
    work_.resize(size * size);
    longest_.resize(size * size);
    for (int rank = 0; rank < ranks_; ++rank)
      tiles_.push_back(static_cast<double>(count(rows.of(rank))) / kTile);
    for (std::int64_t row = 0; row < with.map.rows.count(); ++row) add(row);
  }

  double balance() const {
    double all = 0, most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto of = work_.begin() + index(rank, 0);
      const double work = std::accumulate(of, of + ranks_, 0.0);
      all += work, most = std::max(most, work);
    }
    return all > 0 ? most * ranks_ / all : 1;
  }

  double milliseconds(int rank, int of, const Speed& speed) const {
    const double work = work_[index(rank, of)];
    return work > 0 ? speed.milliseconds(load(rank, work, longest_[index(rank, of)])) : 0;
  }

  // Time to merge what a step gives with what the steps before gave.
  double merging_ms(int rank, const Speed& speed) const {
    const ir::Dims& dims = with_.attention.dims;
    return speed.moving(3 * kBytesOfPartial * tiles_[static_cast<std::size_t>(rank)] * kTile *
                        static_cast<double>(dims[Dim::B] * dims[Dim::Hq] * dims[Dim::Dv]));
  }

  double milliseconds(int rank, const Speed& speed) const {
    const auto begin = static_cast<std::ptrdiff_t>(index(rank, 0));
    const double work = std::accumulate(work_.begin() + begin, work_.begin() + begin + ranks_, 0.0);
    return speed.milliseconds(
        load(rank, work,
             std::accumulate(longest_.begin() + begin, longest_.begin() + begin + ranks_, 0.0)));
  }

 private:
  void add(std::int64_t row) {
    std::vector<double> sums(static_cast<std::size_t>(ranks_));
    for (std::int64_t key = 0; key < with_.map.keys.count(); ++key)
      sums[static_cast<std::size_t>(keys_.owners[static_cast<std::size_t>(key)])] +=
          with_.map.at(row, key);
    const int rank = rows_.owners[static_cast<std::size_t>(row)];
    for (int of = 0; of < ranks_; ++of) {
      const double sum = sums[static_cast<std::size_t>(of)];
      work_[index(rank, of)] += sum;
      longest_[index(rank, of)] = std::max(longest_[index(rank, of)], sum);
    }
  }

  Speed::Load load(int rank, double work, double longest) const {
    const ir::Dims& dims = with_.attention.dims;
    const auto heads = static_cast<double>(dims[Dim::B] * dims[Dim::Hq]);
    const double of_key = static_cast<double>(with_.map.keys.unit) / kTile;
    const double of_row = static_cast<double>(with_.map.rows.unit) / kTile;
    return {work * of_key * of_row * heads, longest * of_key,
            tiles_[static_cast<std::size_t>(rank)] * heads, 0};
  }

  std::size_t index(int rank, int of) const { return static_cast<std::size_t>(rank * ranks_ + of); }

  const int ranks_;
  const Dealing& rows_;
  const Dealing& keys_;
  const Estimating& with_;
  std::vector<double> tiles_;           // of rows, by rank
  std::vector<double> work_, longest_;  // by rank, and rank whose keys they are
};

// Bytes of all keys and values, of so many bytes an element.
double bytes_of_keys(const ir::Attention& attention, double element) {
  const ir::Dims& dims = attention.dims;
  return element * static_cast<double>(dims[Dim::B] * dims[Dim::Hkv]) *
         static_cast<double>(dims[Dim::Skv]) * static_cast<double>(dims[Dim::Dqk] + dims[Dim::Dv]);
}

// A ring is as fast as its slowest link.
const Link& slowest(int ranks, const Links& links) {
  return ranks > links.ranks_of_host ? links.between : links.inside;
}

// In every step each rank computes with keys that another one has at home, and passes them on.
double ring_ms(int ranks, const Rows& rows, const Speed& speed, double ms_of_step, bool merges) {
  double sum = 0;
  for (int step = 0; step < ranks; ++step) {
    double most = step + 1 < ranks ? ms_of_step : 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const double ms = rows.milliseconds(rank, (rank + step) % ranks, speed);
      const double merging = merges && ms > 0 && step > 0 ? rows.merging_ms(rank, speed) : 0;
      most = std::max(most, ms + merging);
    }
    sum += most;
  }
  return sum;
}

Scheme ring(std::string_view name, int ranks, const Rows& rows, const Estimating& with) {
  const double element = static_cast<double>(size_of(with.attention.dtype));
  const double chunk = bytes_of_keys(with.attention, element) / ranks;
  const double gradients = bytes_of_keys(with.attention, kBytesOfPartial) / ranks;
  const Link& link = slowest(ranks, with.links);
  Scheme scheme{name, {}, rows.balance()};
  scheme.received = (ranks - 1) * chunk;
  scheme.received_backward = (ranks - 1) * chunk + ranks * gradients;
  scheme.forward_ms = ring_ms(ranks, rows, with.forward, link.milliseconds(chunk), true);
  scheme.backward_ms =
      ring_ms(ranks, rows, with.backward, link.milliseconds(chunk + gradients), false) +
      link.milliseconds(gradients);  // the last one brings them home
  return scheme;
}

Scheme gathered(int ranks, const Rows& rows, const Estimating& with) {
  const double element = static_cast<double>(size_of(with.attention.dtype));
  const double part = (ranks - 1.0) / ranks;
  const Link& link = slowest(ranks, with.links);
  Scheme scheme{"all-gather", {}, rows.balance()};
  scheme.received = part * bytes_of_keys(with.attention, element);
  const double gradients = part * bytes_of_keys(with.attention, kBytesOfPartial);
  scheme.received_backward = scheme.received + gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    scheme.forward_ms = std::max(scheme.forward_ms, rows.milliseconds(rank, with.forward));
    scheme.backward_ms = std::max(scheme.backward_ms, rows.milliseconds(rank, with.backward));
  }
  scheme.forward_ms += link.milliseconds(scheme.received);
  scheme.backward_ms += link.milliseconds(scheme.received) + link.milliseconds(gradients);
  return scheme;
}

Scheme ulysses(int ranks, const Estimating& with) {
  Scheme scheme{"Ulysses", {}};
  const std::int64_t heads = with.attention.dims[Dim::Hkv];
  if (heads % ranks != 0) {
    scheme.refusal = fmt::format("{} key head{} cannot be divided among {} ranks", heads,
                                 heads == 1 ? "" : "s", ranks);
    return scheme;
  }
  const Sharding sharding{
      ranks, ranks, false, 0, contiguous(with.map.rows, ranks), contiguous(with.map.keys, ranks)};
  const Estimate made = estimate(sharding, with);
  scheme.received = made.bytes();
  for (const RankEstimate& rank : made.ranks) {
    scheme.received_backward = std::max(scheme.received_backward, rank.received_backward.bytes());
  }
  scheme.forward_ms = made.forward_ms();
  scheme.backward_ms = made.backward_ms();
  return scheme;
}

Dealing zigzag(const Blocks& blocks, int ranks) {
  Dealing dealing = contiguous(blocks, 2 * ranks);
  dealing.ranks = ranks;
  for (int& owner : dealing.owners) owner = std::min(owner, 2 * ranks - 1 - owner);
  return dealing;
}

}  // namespace

std::vector<Scheme> classic_schemes(int ranks, const Estimating& with) {
  const Dealing rows = contiguous(with.map.rows, ranks), keys = contiguous(with.map.keys, ranks);
  const Dealing zigzag_rows = zigzag(with.map.rows, ranks),
                zigzag_keys = zigzag(with.map.keys, ranks);
  const Rows zigzagged(zigzag_rows, zigzag_keys, with);
  return {ring("ring", ranks, Rows(rows, keys, with), with),
          ring("zigzag ring", ranks, zigzagged, with), ulysses(ranks, with),
          gathered(ranks, zigzagged, with)};
}

}  // namespace attn::sharding
