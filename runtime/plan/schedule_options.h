// What a caller wants of a schedule (plan::Schedule): the first words of its `options` tensor. The
// runtime writes them and the kernel that makes the schedule reads them, so this has no includes
// and only types that both have. All zero: the kernel's own choice.
#pragma once

namespace attn::plan {

struct ScheduleOptions {
  const int* sequences_at;  // the number of sequences, in device memory; null: see `sequences`
  int sequences;            // their number + 1, or 0: all
  int most_parts;           // of a tile; 0: no limit
  int split_keys;           // keys of a part; 0: parts are as long as balances the GPU
  int blocks;               // of threads to use; 0: the launch's
  int slots;                // that the memory has; 0: the plan's
  int shared_keys;          // at the beginning of all sequences; kScheduleSharedBeside
};

static_assert(sizeof(ScheduleOptions) == 32, "8 words of 4 bytes, without gaps");

// Where the number of shared keys is in memory: behind the number of sequences at `sequences_at`.
inline constexpr int kScheduleSharedBeside = -1;

// Bits of the word with that index of the schedule, by which its kernel says what did not fit.
inline constexpr int kScheduleFlagsWord = 3;
inline constexpr int kScheduleTooManyParts = 1;  // tiles are undivided, since slots were too few
inline constexpr int kScheduleTooLong = 2;       // a length is beyond what the plan has
inline constexpr int kScheduleNotShared = 4;     // each sequence reads the shared keys

// Parts of a tile with split_keys, where most_parts is 0: longer parts are taken where these would
// be more.
inline constexpr int kScheduleMostParts = 256;

}  // namespace attn::plan
