// What blocks of threads of the forward compute where lengths differ between batches: a schedule,
// made on the device (schedule_maker.cuh), so that work follows from what a batch has and not from
// what it may have.
//
// An item is a tile of queries of a unit of heads, and some of its blocks of keys. Each block of
// threads has items alone, which follow each other, and takes the others in turns.
//
//   header   numbers of the items that are taken in turns, blocks of threads that work, flags
//   spans    for each block of threads: the items that it has alone
//   notes    of tiles, while the schedule is made
//   items
//
// What a part of a divided tile has is stored in a slot, which begins with these words: its tile's
// parts; then, in the first one of the tile, how many of these each warp has stored.
#pragma once

#include "attn/schedule_options.h"

namespace kernels {

using attn::plan::ScheduleOptions;

struct ScheduleHeader {
  int first, end;  // items that are taken in turns
  int workers;     // blocks of threads
  int flags;       // kScheduleTooManyParts, ..
  int taken;       // in turns, by now: 0 before each run, and after it
  int last;        // that is taken: each block of threads takes one that does not exist
  int sequences;
  int prefix;  // parts of a tile of it, twice, and 1 after every other run (forward_prefix.cuh)
};

struct alignas(8) Span {
  int begin, end;
};

// Blocks of keys of a tile: `blocks` from the `first` on. `tile` has the tile of the unit's, and
// above it the slot of a part, from 1 on.
// That of a prefix (kPrefix) has the unit of a batch behind all others.
struct alignas(16) ScheduledItem {
  int unit;
  unsigned tile;
  int first, blocks;
};
constexpr int kTileBits = 16;

// The first word of a slot: the first slot of its tile, and above it how many there are.
constexpr int kSlotBits = 16;
constexpr unsigned kSlotMask = (1u << kSlotBits) - 1;

// How many sequences a schedule was made for.
static __device__ int sequences_of(const int* schedule) {
  return reinterpret_cast<const ScheduleHeader*>(schedule)->sequences;
}

// Where parts of a schedule are.
template <class C>
struct Schedule {
  int* words;

  static constexpr int kSpans = 8, kNotes = (kSpans + 2 * C::kWorkers + 3) / 4 * 4;
  static constexpr int kTilesNoted = (C::kBatches * C::kTiles + 4) / 4 * 4;  // and one more
  static constexpr int kItems = kNotes + 4 * kTilesNoted;

  __device__ ScheduleHeader& header() const { return *reinterpret_cast<ScheduleHeader*>(words); }
  __device__ Span& span(int i) const { return reinterpret_cast<Span*>(words + kSpans)[i]; }
  __device__ int* notes(int note) const { return words + kNotes + note * kTilesNoted; }
  __device__ ScheduledItem& item(int i) const {
    return reinterpret_cast<ScheduledItem*>(words + kItems)[i];
  }
};

// Slots of parts, from 1 on.
template <class C>
struct Slots {
  float* memory;

  // The first slot of a tile of a prefix, of which there are so many parts.
  static __device__ int of_prefix(int tile, int unit, int parts) {
    return 1 + (tile * C::kUnits + unit) * parts;
  }

  // What a warp stores of a part: for each lane two maxima and two sums, then o, row by row.
  static constexpr int kPartStatistics = 4 * 32, kPartSize = kPartStatistics + 16 * C::kShare;
  static constexpr int kWarps = 4 * C::kGroups * C::kShares;  // that store parts
  static constexpr int kWords = C::kScheduled ? 16 : 0;       // before what they store
  static constexpr int kSize = kWords + kWarps * kPartSize;
  static_assert(!C::kScheduled || kWarps < kWords, "a word for each warp, and one more");

  __device__ int* words(int slot) const {
    return reinterpret_cast<int*>(memory + (long long)(slot - 1) * kSize);
  }
  // Writes the words of a slot before it is used. Returns its bits in an item.
  __device__ unsigned open(int slot, int first, int parts) const {
    int* of_slot = words(slot);
    of_slot[0] = (int)((unsigned)first | (unsigned)parts << kSlotBits);
    for (int i = 0; i < kWarps; ++i) of_slot[1 + i] = 0;
    return (unsigned)slot << kTileBits;
  }
};

}  // namespace kernels
