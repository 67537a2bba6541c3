// Schedules of sequences that begin with the same keys (attn/schedule_prefix.cuh).
#include "tests/host/schedule_cases.h"

namespace attn::schedule_tests {
namespace {

// Sequences that may begin with the same keys: decodes, and packed rows.
struct SharedByDecodes : Defaults {
  static constexpr bool kThdO = true, kPrefix = true;
  static constexpr int kBatches = 40, kUnits = 3, kRows = 1, kRowsOfTile = 4, kTiles = 1;
  static constexpr int kColumns = 900, kWorkers = 13, kSlots = 6 * 13 * 8 / 5 + 1;
};
struct SharedByRows : PackedRows {
  static constexpr bool kPrefix = true;
};

// Sequences of which most, or all, have the shared keys.
template <class C>
Case shared_case(unsigned seed) {
  Random random(seed);
  Case made = random_case<C>(seed);
  made.split_keys = 0;
  made.shared = random.once_in(5) ? random.below(C::kColumns) : random.below(C::kColumns / 2);
  made.beside = made.at_address && random.once_in(2);
  for (std::size_t b = 0; b < made.rows.size(); ++b) {
    made.rows[b] =
        random.once_in(3) ? std::clamp(made.rows[b], 0, C::kRows) : std::clamp(made.rows[b], 0, 3);
    const int least = std::min(made.shared + made.rows[b], C::kColumns);
    if (!random.once_in(300)) made.keys[b] = std::max(made.keys[b], least);
  }
  return made;
}

template <class C>
Seen check_shared_cases(unsigned count) {
  Seen seen;
  for (unsigned seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Case made = shared_case<C>(seed);
    Check<C>(made).run(seen);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_TRUE(seen.shared > static_cast<int>(count) / 2 && seen.unshared > 0 &&
              seen.divided_prefixes > 0)
      << seen.shared << " shared, " << seen.unshared << " not, " << seen.divided_prefixes
      << " divided";
  return seen;
}

TEST(Schedules, OfKeysThatSequencesShare) {
  check_shared_cases<SharedByDecodes>(120);
  check_shared_cases<SharedByRows>(120);
}

}  // namespace
}  // namespace attn::schedule_tests
