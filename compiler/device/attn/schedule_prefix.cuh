// Items of a schedule (schedule.cuh) of keys that all sequences begin with: tiles of the packed
// rows of all of them, with parts of their own, before all other items. Of whole blocks of keys;
// what is left of a last one, sequences read themselves.
#pragma once

#include "attn/bands.cuh"
#include "attn/schedule.cuh"

namespace kernels {

// The prefix of a schedule, which all threads that make it know.
template <class C>
struct SchedulePrefix {
  int blocks = 0;  // of keys; 0: there is none
  int tiles = 0;   // of a unit
  int of_part = 1, parts = 0;

  // Blocks of the keys that the caller says are shared.
  static __device__ int wanted(const ScheduleOptions& options) {
    if constexpr (!C::kPrefix) return 0;
    const bool is_beside = options.shared_keys == attn::plan::kScheduleSharedBeside;
    const int keys = !is_beside                        ? options.shared_keys
                     : options.sequences_at != nullptr ? options.sequences_at[1]
                                                       : 0;
    return (int)larger(0, (int)smaller(keys, C::kColumns)) / C::kKeys;
  }

  // Whether all rows of a sequence see all keys of these blocks. The first one must have them,
  // since they are read there.
  template <class E>
  static __device__ bool are_seen(const E& expressions, int b, int blocks) {
    const int rows = expressions.queries(b), end = blocks * C::kKeys;
    if (rows <= 0) return b > 0 || expressions.keys(b) >= end;
    const Band band = expressions.columns(b, 0, {0, rows - 1});
    return band.begin.high <= 0 && band.end.low >= end && expressions.keys(b) >= end;
  }

  // Items of a prefix, which have a slot each.
  __device__ int items() const { return tiles * C::kUnits * parts; }

  // Begins one of so many rows. False if even undivided tiles have too few slots.
  __device__ bool begin(int blocks_of_all, int rows, int slots) {
    const int count = rows > 0 ? (rows - 1) / C::kRowsOfTile + 1 : 0;
    if (count > slots / C::kUnits) return false;
    if (count > 0) blocks = blocks_of_all, tiles = count;
    return true;
  }
  // Divides its tiles into parts, all alike, and returns how many blocks parts of sequences have,
  // whose tiles cost so much in each unit. All are taken in turns, those of the prefix first, so
  // that no one who waits for these keeps another from them; and they are not so long that others
  // wait for long.
  __device__ int divide(int cost, int workers, int most_parts, int slots) {
    const long long of_unit = cost + (long long)tiles * (blocks + C::kBetween);
    const int share = (int)smaller(of_unit * C::kUnits / workers + 1, 1 << 30);
    const int half = (int)larger(share / 2, C::kLeastSpan);
    divide_tiles(half, most_parts, slots);
    return share < C::kLongShare ? half : (int)larger(share / C::kTurnsOfShare, C::kLeastOfTurns);
  }
  __device__ void divide_tiles(int about, int most_parts, int slots) {
    const int fit = slots / (tiles * C::kUnits);
    const int count = (int)smaller((int)smaller((blocks + about - 1) / about, most_parts), fit);
    of_part = (blocks + count - 1) / count;
    parts = (blocks + of_part - 1) / of_part;
  }

  // Parts of all tiles are side by side, and units, as their keys are.
  __device__ void write_items(const Schedule<C>& schedule, const Slots<C>& slots) const {
    for (int i = threadIdx.x; i < items(); i += blockDim.x) {
      const int unit = i % C::kUnits, tile = i / C::kUnits % tiles;
      const int part = i / C::kUnits / tiles, first = part * of_part;
      const int slot = Slots<C>::of_prefix(tile, unit, parts);
      const unsigned opened = slots.open(slot + part, slot, parts);
      schedule.item(i) = {C::kBatches * C::kUnits + unit, tile | opened, first,
                          (int)smaller(of_part, blocks - first)};
    }
  }
};

}  // namespace kernels
