// Which blocks of scores a tile sees, in closed form: where masks are a band, what each row sees
// begins and ends at values that the tile's rows and the batch give. Of the backward, the same with
// rows and columns exchanged.
#pragma once

#include "attn/intervals.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Where it begins and where it ends (one past the last): the least and the greatest values that
// rows of a tile have.
struct Band {
  Interval begin, end;
};

// Beyond all indices, also after sums with integers.
constexpr long long kBeyond = 1ll << 40;
static __device__ Interval before_all() { return {-kBeyond, -kBeyond}; }
static __device__ Interval past_all() { return {kBeyond, kBeyond}; }

// Bounds of an index are no integers of 32 bits: they do not wrap.
static __device__ long long within(long long x) {
  return x < -kBeyond ? -kBeyond : x > kBeyond ? kBeyond : x;
}
static __device__ Interval bound(Interval x) { return {within(x.low), within(x.high)}; }
static __device__ Interval bound_sum(Interval x, Interval y) {
  return {x.low + y.low, x.high + y.high};
}
static __device__ Interval bound_difference(Interval x, Interval y) {
  return {x.low - y.high, x.high - y.low};
}
static __device__ Interval bound_product(Interval x, int by) {
  return bound({x.low * by, x.high * by});
}
static __device__ Interval bound_quotient(Interval x, int by) { return quotient(x, point(by)); }

// A bound that was found from `value`: if that wraps, nothing is known.
static __device__ Interval unless_wrapped(Interval value, Interval found) {
  const bool wraps = value.low == kLowestInt && value.high == kHighestInt;
  return wraps ? Interval{-kBeyond, kBeyond} : found;
}

// Where it begins and ends if more than what is known to be seen may be: as far as `other` at most.
static __device__ Interval lowered(Interval x, Interval other) {
  return {smaller(x.low, other.low), x.high};
}
static __device__ Interval raised(Interval x, Interval other) {
  return {x.low, larger(x.high, other.high)};
}

// All is seen where the condition holds, and else nothing.
static __device__ Interval begin_if(Interval condition) {
  return {condition.high ? -kBeyond : kBeyond, condition.low ? -kBeyond : kBeyond};
}
static __device__ Interval end_if(Interval condition) {
  return {condition.low ? kBeyond : -kBeyond, condition.high ? kBeyond : -kBeyond};
}

// Adjacent blocks of a tile from index `first` on: `before` of which masks hide a part, `full` of
// which they show all, then others.
struct BandBlocks {
  int first, before, full, all;
};

// Those of kBlock indices, of which the first is a multiple of kStart, below `size`.
template <int kBlock, int kStart>
static __device__ BandBlocks blocks_of_band(const Band& band, int size) {
  const auto cut = [](long long i, int most) { return (int)smaller(larger(i, 0), most); };
  const int first = cut(band.begin.low, size) / kStart * kStart, end = cut(band.end.high, size);
  if (cut(band.begin.low, size) >= end) return {first, 0, 0, 0};
  const int all = (end - first + kBlock - 1) / kBlock;
  const int full_begin = cut(band.begin.high, size), full_end = cut(band.end.low, size);
  const int before = cut((full_begin - first + kBlock - 1) / kBlock, all);
  // Masks show all of a block that ends beyond `size`.
  const int shown = full_end == size ? all : (full_end - first) / kBlock;
  return {first, before, cut(shown - before, all), all};
}

// The n-th tile of a list, the first ones first, or the last one that has indices below `size`
// (kLastFirst): then others follow.
template <bool kLastFirst, int kTiles, int kOfTile>
static __device__ int tile_of_band(int n, int size) {
  if (!kLastFirst || kTiles == 1) return n;
  const int used = (size + kOfTile - 1) / kOfTile;
  return n < used ? used - 1 - n : n;
}

struct NoLists {};  // of the forward
// The tiles of each list of the backward, of which only the numbers are known.
template <int kTiles, bool kLastFirst>
struct TilesOfBand {
  __device__ Tile tile(int i) const { return {kLastFirst ? kTiles - 1 - i : i, 0, 0, 0}; }
};

}  // namespace kernels
