// Schedules that the GPU makes (attn/schedule_maker.cuh), on the emulated GPU: random cases for a
// kernel's constants, and what must follow from each. Included last: it redefines `asm`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/engines/native/schedules.h"
#include "runtime/plan/schedule_options.h"
#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "attn/forward_defaults.cuh"
#include "attn/schedule_maker.cuh"
#pragma GCC diagnostic pop

namespace attn::schedule_tests {

using engines::native::ScheduleSizes;
using engines::native::Tile;

constexpr int ceil_div(int x, int y) { return (x + y - 1) / y; }

// Kernels' constants; o has few columns, so that slots are small.
struct Defaults : kernels::ForwardDefaults {
  static constexpr bool kScheduled = true, kBand = true;
  static constexpr int kGroups = 1, kShares = 1, kShare = 16;
  static constexpr int kUnits = 1, kSection = 1;
  static constexpr int kKeys = 16, kBandStart = kKeys;
  static constexpr int kBetween = 4, kMerging = 6, kLeastSpan = 4;
  static constexpr int kLongShare = 120, kTurnsOfShare = 6, kLeastOfTurns = 36;
  static constexpr int kWindow = 0;  // keys that a row sees up to its own; 0: all keys
};

// What a schedule is made of.
struct Case {
  std::vector<int> rows, keys;  // which may be beyond what there may be
  int sequences = 0;
  bool at_address = false;
  int most_parts = 0, split_keys = 0, workers = 0, slots = 0;
  int shared = 0;          // keys
  bool beside = false;     // which are in memory
  bool backwards = false;  // the last threads run first
};

template <class C>
struct Expressions {
  const int *rows, *columns_of;
  int sequences;                     // that have lengths
  static inline int reads_past = 0;  // of others

  __device__ int queries(int b) const { return std::min(rows[read(b)], C::kRows); }
  __device__ int keys(int b) const { return std::min(columns_of[read(b)], C::kColumns); }
  __device__ bool beyond(int b) const {
    const int row = rows[read(b)], keys = columns_of[b];
    return row < 0 || row > C::kRows || keys < 0 || keys > C::kColumns;
  }
  __device__ int read(int b) const {
    if (b >= sequences) ++reads_past;
    return b;
  }
  __device__ kernels::Band columns(int b, int, kernels::Interval of) const {
    if (C::kWindow == 0) return {kernels::before_all(), kernels::past_all()};
    const long long shift = keys(b) - queries(b) + 1;
    const long long low = of.low + shift, high = of.high + shift;
    return {{low - C::kWindow, high - C::kWindow}, {low, high}};
  }
};

// What follows from a case.
template <class C>
class Expected {
 public:
  explicit Expected(const Case& of) : of_(of) {}

  Expressions<C> given() const { return {of_.rows.data(), of_.keys.data(), sequences()}; }
  int slots() const { return of_.slots > 0 ? of_.slots : C::kSlots; }
  int workers() const { return of_.workers > 0 ? std::min(of_.workers, C::kWorkers) : C::kWorkers; }
  int sequences() const { return std::clamp(of_.sequences, 0, C::kBatches); }

  int tiles_of(int b) const {
    return C::kThdO ? ceil_div(std::max(0, given().queries(b)), C::kRowsOfTile) : C::kTiles;
  }
  // Blocks of keys that are read once, if all rows see them, and tiles of these have slots.
  int prefix() const { return is_shared() ? of_.shared / C::kKeys : 0; }
  bool is_shared() const {
    const int end = of_.shared / C::kKeys * C::kKeys;
    if (sequences() == 0 || of_.shared < C::kKeys || given().keys(0) < end) return false;
    for (int b = 0; b < sequences(); ++b) {
      const int rows = given().queries(b), keys = given().keys(b);
      if (given().beyond(b)) return false;
      if (rows > 0 && (C::kWindow > 0 ? keys - rows + 1 : keys) < end) return false;
    }
    return prefix_tiles() * C::kUnits <= slots();
  }
  int prefix_tiles() const { return ceil_div(starts()[sequences()], C::kRowsOfTile); }
  std::vector<int> starts() const {
    std::vector<int> starts = {0};
    for (const int rows : of_.rows) starts.push_back(starts.back() + std::max(0, rows));
    return starts;
  }

  // Behind these.
  int blocks_of(int b, int tile) const { return all_blocks_of(b, tile) - prefix(); }
  int all_blocks_of(int b, int tile) const {
    const int rows = given().queries(b), keys = given().keys(b), first = tile * C::kRowsOfTile;
    if (first >= rows || keys <= 0) return 0;
    const int last = std::min(first + C::kRowsOfTile, rows) - 1, shift = keys - rows;
    int begin = 0, end = keys;
    if (C::kWindow > 0) {
      begin = std::max(0, first + shift + 1 - C::kWindow);
      end = std::min(keys, last + shift + 1);
    }
    return begin >= end ? 0 : ceil_div(end - begin / C::kBandStart * C::kBandStart, C::kKeys);
  }

  // Blocks of a part, as long as `split_keys` says, or a multiple of that.
  int blocks_of_part(int blocks) const {
    const int split = std::max(1, of_.split_keys / C::kKeys);
    const int most = of_.most_parts > 0 ? std::min(of_.most_parts, 65535) : 256;
    return std::max(1, split * ceil_div(ceil_div(blocks, split), most));
  }
  int flags() const {
    bool beyond = false;
    long long slots_needed = 0;
    for (int b = 0; b < sequences(); ++b) {
      beyond = beyond || given().beyond(b);
      for (int tile = 0; tile < tiles_of(b); ++tile) {
        const int blocks = blocks_of(b, tile), parts = ceil_div(blocks, blocks_of_part(blocks));
        if (parts > 1) slots_needed += parts * C::kUnits;
      }
    }
    const bool overflow = of_.split_keys > 0 && slots_needed > slots();
    const bool unshared = of_.shared >= C::kKeys && sequences() > 0 && !is_shared();
    return (beyond ? plan::kScheduleTooLong : 0) | (overflow ? plan::kScheduleTooManyParts : 0) |
           (unshared ? plan::kScheduleNotShared : 0);
  }

 private:
  const Case& of_;
};

// A schedule, in memory of the size that a plan says.
template <class C>
class Made {
 public:
  using Schedule = kernels::Schedule<C>;
  using Slots = kernels::Slots<C>;

  Made(const Case& of, const Expected<C>& expected) {
    const ScheduleSizes sizes{C::kWorkers, C::kBatches, C::kTiles, C::kUnits, expected.slots()};
    EXPECT_EQ(ScheduleSizes::elements_of_slot({.groups = C::kGroups, .width = C::kShare}),
              Slots::kSize);
    words_.assign(static_cast<std::size_t>(sizes.words()) + 2 * kAround, kPoison);
    slots_.assign(static_cast<std::size_t>(expected.slots() * Slots::kSize) + 2 * kAround, kPoison);
    const int numbers[] = {of.sequences, of.beside ? of.shared : -7};
    plan::ScheduleOptions options{
        .sequences_at = of.at_address ? numbers : nullptr,
        .sequences = of.at_address ? 0 : of.sequences + 1,
        .most_parts = of.most_parts,
        .split_keys = of.split_keys,
        .blocks = of.workers,
        .slots = of.slots,
        .shared_keys = of.beside ? plan::kScheduleSharedBeside : of.shared};
    Expressions<C> expressions = expected.given();
    int *words = schedule().words, *parts = slots_.data() + kAround;
    int* from = reinterpret_cast<int*>(&options);
    const std::vector<int> starts = expected.starts();
    const int* row_starts = starts.data();
    void* arguments[] = {&expressions, &words, &parts, &from, &row_starts};
    const auto kernel = [](void* const* with) { call_with(entry, with); };
    EXPECT_EQ(gpu::run(kernel, arguments, {.blocks = 1, .threads = kernels::kScheduleThreads},
                       of.backwards ? gpu::Order::late_copies : gpu::Order::early_copies),
              "");
  }

  Schedule schedule() { return {words_.data() + kAround}; }
  kernels::ScheduleHeader header() { return schedule().header(); }
  const int* slot(int number) const {
    return slots_.data() + kAround + static_cast<std::size_t>((number - 1) * Slots::kSize);
  }

  // Nothing is written but what is used.
  void check_memory(const std::set<int>& items, const std::set<int>& slots, bool notes) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == kPoison) continue;
      const int at = static_cast<int>(i) - kAround, item = at - Schedule::kItems;
      const bool is_span = at >= 0 && at < Schedule::kSpans + 2 * C::kWorkers;
      const bool is_note = at >= Schedule::kNotes && item < 0 && notes;
      ASSERT_TRUE(is_span || is_note || (item >= 0 && items.contains(item / 4))) << at;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] == kPoison) continue;
      const int at = static_cast<int>(i) - kAround, word = at % Slots::kSize;
      ASSERT_TRUE(at >= 0 && word <= Slots::kWarps && slots.contains(at / Slots::kSize + 1)) << at;
    }
  }

 private:
  static constexpr int kPoison = 0x5a5a5a5a, kAround = 64;  // words before and behind

  static void entry(Expressions<C> expressions, int* schedule, float* parts, const int* options,
                    const int* row_starts) {
    kernels::make_schedule<C>(expressions, schedule, parts, options, row_starts);
  }

  std::vector<int> words_, slots_;
};

// A part of a tile.
struct Part {
  int first = 0, blocks = 0, slot = 0;
  bool on_line = false;
};

// What was seen of all schedules of a kernel.
struct Seen {
  int lines = 0, divided = 0, whole = 0, overflows = 0, beyond = 0, near = 0, far = 0;
  int shared = 0, unshared = 0, divided_prefixes = 0;
};

// Makes the schedule of a case and checks it.
template <class C>
class Check {
 public:
  explicit Check(const Case& of) : of_(of), expected_(of), made_(of, expected_) { read(); }

  void run(Seen& seen) {
    EXPECT_EQ(Expressions<C>::reads_past, 0) << "lengths of sequences that are not there";
    EXPECT_EQ(header().workers, expected_.workers());
    EXPECT_EQ(header().flags, expected_.flags());
    EXPECT_EQ(header().taken, 0);
    const int in_turns = std::max(0, header().end - header().first);
    EXPECT_EQ(header().last, in_turns + expected_.workers() - 1) << "each takes one in vain";
    check_tiles();
    check_prefix(seen);
    if (line_ > 0) check_line();
    const bool far = tiles_ > 2048;
    made_.check_memory(used_, used_slots_, far);
    const bool divided = line_ == 0 && !used_slots_.empty();
    seen.lines += line_ > 0, seen.divided += divided, seen.whole += line_ == 0 && !divided;
    seen.beyond += (header().flags & plan::kScheduleTooLong) != 0;
    seen.overflows += overflows();
    seen.near += !far, seen.far += far;
  }

 private:
  kernels::ScheduleHeader header() { return made_.header(); }
  bool overflows() { return (header().flags & plan::kScheduleTooManyParts) != 0; }

  // Items of spans, and those in turns.
  void read() {
    for (int i = 0; i < C::kWorkers; ++i) {
      const kernels::Span span = made_.schedule().span(i);
      EXPECT_TRUE(i < expected_.workers() || span.end == 0) << i;
      auto& parts = spans_.emplace_back();
      const bool on_line = header().first > expected_.workers();
      for (int n = span.begin; n < span.end; ++n) parts.push_back(read_item(n, on_line));
    }
    const int end = header().end;
    for (int n = header().first; n < end; ++n) read_item(n, false);
    for (auto& [tile, parts] : parts_) std::ranges::sort(parts, {}, &Part::first);
  }
  Part read_item(int number, bool on_line) {
    EXPECT_TRUE(used_.insert(number).second) << number << " is taken twice";
    const kernels::ScheduledItem item = made_.schedule().item(number);
    const Part part{item.first, item.blocks, static_cast<int>(item.tile >> kernels::kTileBits),
                    on_line};
    const int tile = static_cast<int>(item.tile & ((1U << kernels::kTileBits) - 1));
    parts_[{item.unit, tile}].push_back(part);
    return part;
  }

  void check_tiles() {
    for (int b = 0; b < expected_.sequences(); ++b) {
      for (int tile = 0; tile < expected_.tiles_of(b); ++tile, ++tiles_) {
        const int blocks = expected_.blocks_of(b, tile);
        longest_ = std::max(longest_, std::max(blocks, 1) + C::kBetween);
        for (int unit = 0; unit < C::kUnits; ++unit) {
          SCOPED_TRACE(::testing::Message() << b << ", " << unit << ", " << tile);
          const auto found = parts_.find({b * C::kUnits + unit, tile});
          ASSERT_TRUE(found != parts_.end());
          ASSERT_NO_FATAL_FAILURE(check_tile(found->second, blocks));
        }
      }
    }
    const int of_prefix = expected_.prefix() > 0 ? expected_.prefix_tiles() : 0;
    EXPECT_EQ(parts_.size(), static_cast<std::size_t>(tiles_ + of_prefix) * C::kUnits);
  }

  // All tiles of a prefix have the same parts, which are taken before all others, each in the slot
  // that follows from it.
  void check_prefix(Seen& seen) {
    const int blocks = expected_.prefix(), count = header().prefix / 2;
    seen.shared += blocks > 0, seen.divided_prefixes += count > 1;
    seen.unshared += (header().flags & plan::kScheduleNotShared) != 0;
    if (blocks == 0 || expected_.prefix_tiles() == 0) {
      EXPECT_EQ(header().prefix, 0);
      return;
    }
    EXPECT_EQ(header().first, 0);
    const int items = expected_.prefix_tiles() * C::kUnits * count;
    for (int i = 0; i < header().end; ++i) {
      EXPECT_EQ(made_.schedule().item(i).unit >= C::kBatches * C::kUnits, i < items);
    }
    for (int unit = 0; unit < C::kUnits; ++unit) {
      for (int tile = 0; tile < expected_.prefix_tiles(); ++tile) {
        const auto found = parts_.find({C::kBatches * C::kUnits + unit, tile});
        ASSERT_TRUE(found != parts_.end());
        const std::vector<Part>& parts = found->second;
        ASSERT_EQ(static_cast<int>(parts.size()), count);
        ASSERT_EQ(parts[0].slot, kernels::Slots<C>::of_prefix(tile, unit, count));
        ASSERT_EQ(parts.back().first + parts.back().blocks, blocks);
        for (std::size_t i = 1; i < parts.size(); ++i)
          ASSERT_EQ(parts[i].first, parts[i - 1].first + parts[i - 1].blocks);
        ASSERT_TRUE(of_.most_parts == 0 || count <= of_.most_parts);
        ASSERT_NO_FATAL_FAILURE(check_slots(parts));
      }
    }
  }

  void check_tile(const std::vector<Part>& parts, int blocks) {
    const auto count = static_cast<int>(parts.size());
    int seen = 0;
    for (const Part& part : parts) {
      ASSERT_EQ(part.first, expected_.prefix() + seen) << "blocks are missing, or in two parts";
      ASSERT_TRUE(part.blocks > 0 || (blocks == 0 && count == 1));
      ASSERT_EQ(part.on_line, parts[0].on_line);
      seen += part.blocks;
    }
    ASSERT_EQ(seen, blocks);
    ASSERT_TRUE(of_.most_parts == 0 || count <= of_.most_parts);
    if (of_.split_keys > 0 && !overflows()) {
      const int of_part = expected_.blocks_of_part(blocks);
      ASSERT_EQ(count, std::max(1, ceil_div(blocks, of_part)));
      for (const Part& part : parts) ASSERT_EQ(part.first % of_part, 0);
    }
    if (parts[0].on_line) line_ += C::kBetween + std::max(blocks, 1);
    ASSERT_TRUE(count > 1 || parts[0].slot == 0);
    if (count > 1) check_slots(parts);
  }

  void check_slots(const std::vector<Part>& parts) {
    const unsigned first = static_cast<unsigned>(parts[0].slot);
    const auto count = static_cast<unsigned>(parts.size());
    for (unsigned i = 0; i < count; ++i) {
      const int slot = parts[i].slot;
      ASSERT_EQ(slot, first + i);
      ASSERT_TRUE(slot >= 1 && slot <= expected_.slots());
      ASSERT_TRUE(used_slots_.insert(slot).second) << slot << " is of two parts";
      const int* words = made_.slot(slot);
      ASSERT_EQ(static_cast<unsigned>(words[0]), first | count << kernels::kSlotBits);
      for (int warp = 0; warp < kernels::Slots<C>::kWarps; ++warp) ASSERT_EQ(words[1 + warp], 0);
    }
  }

  // Each span has the same cost, but for what is between two tiles at its ends; the last one that
  // has any has less.
  void check_line() {
    const int workers = expected_.workers();
    long long span = std::max<long long>((line_ + workers - 1) / workers, C::kLeastSpan);
    if (of_.most_parts > 1) {
      span = std::max<long long>(span, ceil_div(longest_, std::min(of_.most_parts, 65535) - 1));
    }
    for (int i = 0; i < workers; ++i) {
      long long cost = 0;
      for (const Part& part : spans_[static_cast<std::size_t>(i)]) {
        cost += (part.first == 0 ? C::kBetween : 0) + std::max(part.blocks, 1);
      }
      const long long expected = std::clamp<long long>(line_ - i * span, 0, span);
      ASSERT_LE(std::abs(cost - expected), C::kBetween) << "span " << i;
    }
  }

  const Case& of_;
  const Expected<C> expected_;
  Made<C> made_;
  std::set<int> used_, used_slots_;  // numbers of items, and slots
  std::vector<std::vector<Part>> spans_;
  std::map<std::pair<int, int>, std::vector<Part>> parts_;  // of each unit of a batch, and tile
  int tiles_ = 0, longest_ = 0;
  long long line_ = 0;  // its length
};

// Random numbers that have the same values everywhere.
class Random {
 public:
  explicit Random(unsigned seed) : bits_(seed) {}
  int below(int end) { return static_cast<int>(bits_() % static_cast<unsigned>(end)); }
  bool once_in(int times) { return below(times) == 0; }

 private:
  std::mt19937 bits_;
};

// Lengths up to `most`: equal, random, few long ones beside short, none, or beyond what there is.
inline std::vector<int> random_lengths(Random& random, int count, int most) {
  const int kind = random.below(6), equal = random.below(most + 1);
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) {
    const int any = random.below(most + 1);
    switch (kind) {
      case 0: lengths.push_back(equal); break;
      case 1: lengths.push_back(most); break;
      case 2: lengths.push_back(any); break;
      case 3: lengths.push_back(random.once_in(8) ? most - any / 8 : any / 64); break;
      case 4: lengths.push_back(random.once_in(2) ? 0 : any); break;
      default: lengths.push_back(any + (random.below(3) - 1) * (most / 4)); break;
    }
  }
  if (random.once_in(12)) lengths.assign(lengths.size(), 0);
  if (random.once_in(6)) lengths[static_cast<std::size_t>(random.below(count))] = most;
  return lengths;
}

template <class C>
Case random_case(unsigned seed) {
  Random random(seed);
  Case made;
  made.backwards = seed % 2 == 1;
  made.rows = random_lengths(random, C::kBatches, C::kRows);
  made.keys = random_lengths(random, C::kBatches, C::kColumns);
  if (random.once_in(2)) std::ranges::fill(made.rows, C::kRows);
  made.at_address = random.once_in(2);
  made.sequences = random.once_in(3) ? random.below(C::kBatches + 1) : C::kBatches;
  if (made.at_address && random.once_in(6))
    made.sequences += random.once_in(2) ? 7 : -3 * C::kBatches;
  if (random.once_in(4)) made.most_parts = 1 + random.below(9);
  if (random.once_in(16)) made.most_parts = random.once_in(2) ? 41 << 20 : 0x7fffffff;
  if (random.once_in(4)) made.split_keys = 1 + random.below(C::kColumns) / (1 + random.below(40));
  if (random.once_in(3)) made.workers = 1 + random.below(C::kWorkers + 3);
  if (random.once_in(3)) made.slots = C::kSlots + random.below(3 * C::kSlots);
  return made;
}

template <class C>
Seen check_cases(unsigned count) {
  Seen seen;
  for (unsigned seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Case made = random_case<C>(seed);
    Check<C>(made).run(seen);
    if (::testing::Test::HasFailure()) break;
  }
  return seen;
}

// Packed rows.
struct PackedRows : Defaults {
  static constexpr bool kThdO = true, kLastTilesFirst = true;
  static constexpr int kBatches = 9, kUnits = 3, kRows = 160, kRowsOfTile = 16, kTiles = 10;
  static constexpr int kColumns = 900, kWorkers = 33, kSection = 2, kWindow = 1 << 20;
  static constexpr int kBetween = 6, kMerging = 8, kLeastSpan = 8;
  static constexpr int kLongShare = 30, kTurnsOfShare = 3, kSlots = 2 * 3 * kWorkers + 1;
};

}  // namespace attn::schedule_tests
