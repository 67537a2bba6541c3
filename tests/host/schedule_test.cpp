// Schedules that the GPU makes, of random lengths and options, for kernels of several sizes.
#include "tests/host/schedule_cases.h"

namespace attn::schedule_tests {
namespace {

// One row of each sequence, as in decoding.
struct OneRow : Defaults {
  static constexpr int kBatches = 21, kUnits = 3, kRows = 1, kRowsOfTile = 16, kTiles = 1;
  static constexpr int kColumns = 1500, kWorkers = 13, kSection = 2;
  static constexpr int kSlots = 6 * 13 * 8 / 5 + 1;
};
// Few sequences, whose parts take turns.
struct LongParts : Defaults {
  static constexpr int kBatches = 3, kRows = 1, kRowsOfTile = 64, kTiles = 1;
  static constexpr int kColumns = 3000, kWorkers = 6, kSlots = 2 * 3 * kWorkers + 1;
  static constexpr int kLongShare = 12, kTurnsOfShare = 3;
};
// Rows past the end are stored; and more blocks of threads than there is work for.
struct PaddedRows : Defaults {
  static constexpr bool kLastTilesFirst = true;
  static constexpr int kBatches = 5, kUnits = 7, kRows = 70, kRowsOfTile = 32, kTiles = 3;
  static constexpr int kColumns = 2500, kWorkers = 150, kSection = 4, kWindow = 1500;
  static constexpr int kBandStart = 8, kGroups = 2, kSlots = 6 * kWorkers * 8 / 5 + 1;
};
// One block of threads.
struct OneWorker : Defaults {
  static constexpr bool kThdO = true;
  static constexpr int kBatches = 4, kUnits = 2, kRows = 40, kRowsOfTile = 8, kTiles = 5;
  static constexpr int kColumns = 640, kWorkers = 1, kSlots = 60;
};
// More tiles than have notes in shared memory.
struct ManyTiles : Defaults {
  static constexpr bool kThdO = true;
  static constexpr int kBatches = 70, kRows = 400, kRowsOfTile = 10, kTiles = 40;
  static constexpr int kColumns = 900, kWorkers = 132, kSlots = 6 * kWorkers * 8 / 5 + 1;
};
// More sequences than the kernel has threads.
struct ManySequences : Defaults {
  static constexpr int kBatches = 1100, kRows = 1, kRowsOfTile = 16, kTiles = 1;
  static constexpr int kColumns = 300, kWorkers = 20, kSlots = 6 * kWorkers * 8 / 5 + 1;
};
// Places that 32 bits do not count: on a line, and of parts in turns.
struct FarLine : Defaults {
  static constexpr int kBatches = 3, kUnits = 40, kRows = 1, kRowsOfTile = 8, kTiles = 1;
  static constexpr int kColumns = 1 << 30, kWorkers = 132, kLongShare = 1 << 30;
  static constexpr int kSlots = 6 * kWorkers * 8 / 5 + 1;
};
struct FarTurns : FarLine {
  static constexpr int kLongShare = 160;
};

// All ways to divide work are among the cases.
void expect_all_ways(const Seen& seen) {
  EXPECT_TRUE(seen.lines > 0 && seen.divided > 0 && seen.whole > 0)
      << seen.lines << " lines, " << seen.divided << " divided, " << seen.whole << " whole";
}
void expect_flags(const Seen& seen) { EXPECT_TRUE(seen.overflows > 0 && seen.beyond > 0); }

TEST(Schedules, OfOneRowOfEachSequence) {
  const Seen seen = check_cases<OneRow>(80);
  expect_all_ways(seen);
  expect_flags(seen);
}

TEST(Schedules, OfLongPartsOfFewSequences) {
  const Seen seen = check_cases<LongParts>(60);
  EXPECT_TRUE(seen.lines == 0 && seen.divided > 0 && seen.whole > 0);
}

TEST(Schedules, OfPackedRows) {
  const Seen seen = check_cases<PackedRows>(120);
  expect_all_ways(seen);
  expect_flags(seen);
}

TEST(Schedules, OfRowsThatAreStoredPastTheEnd) { expect_all_ways(check_cases<PaddedRows>(40)); }

TEST(Schedules, OfOneBlockOfThreads) { expect_flags(check_cases<OneWorker>(60)); }

TEST(Schedules, OfMoreTilesThanAreNotedInSharedMemory) {
  const Seen seen = check_cases<ManyTiles>(60);
  expect_all_ways(seen);
  EXPECT_TRUE(seen.near > 0 && seen.far > 0);
}

TEST(Schedules, OfMoreSequencesThanThreads) {
  const Seen seen = check_cases<ManySequences>(30);
  EXPECT_TRUE(seen.divided > 0 && seen.whole > 0 && seen.beyond > 0);
}

// Whichever sequence it is of.
TEST(Schedules, SayThatALengthIsTooLong) {
  static_assert(offsetof(kernels::ScheduleHeader, flags) == 4 * plan::kScheduleFlagsWord);
  Case made;
  made.rows.assign(ManySequences::kBatches, 1);
  made.sequences = ManySequences::kBatches;
  for (const int b : {0, 511, 512, 1023, 1024, ManySequences::kBatches - 1}) {
    for (const bool at_address : {false, true}) {
      made.at_address = at_address;
      made.keys.assign(ManySequences::kBatches, 20);
      made.keys[static_cast<std::size_t>(b)] = ManySequences::kColumns + 1;
      Seen seen;
      Check<ManySequences>(made).run(seen);
      EXPECT_EQ(seen.beyond, 1) << b;
    }
  }
}

TEST(Schedules, OfPlacesThat32BitsDoNotCount) {
  static_assert(sizeof(kernels::ScheduleMaker<FarLine, Expressions<FarLine>>::Place) == 8);
  static_assert(sizeof(kernels::ScheduleMaker<OneRow, Expressions<OneRow>>::Place) == 4);
  EXPECT_GT(check_cases<FarLine>(40).lines, 0);
  EXPECT_GT(check_cases<FarTurns>(40).divided, 0);
}

}  // namespace
}  // namespace attn::schedule_tests
