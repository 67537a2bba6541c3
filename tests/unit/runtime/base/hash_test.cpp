#include "runtime/base/hash.h"

#include <gtest/gtest.h>

#include <set>

namespace attn {
namespace {

// Stored in plan files, so these values must never change.
TEST(Hash, HasTheKnownValues) {
  EXPECT_EQ(hash128("").to_hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128("attnc").to_hex(), "ddb6b83916e524f7e509e24bbde32228");
  EXPECT_EQ(hash128(std::string(1000, 'x')).to_hex(), "50a1af5a5f2dcf01c0a4877b962cba82");
}

TEST(Hash, SpellsTheHighHalfFirstWithItsZeros) {
  EXPECT_EQ((Hash128{1, 0xAB}).to_hex(), "000000000000000100000000000000ab");
}

TEST(Hash, SeesEveryByteAndTheLength) {
  std::set<Hash128> seen;
  for (std::size_t length = 0; length < 64; ++length) {
    for (std::size_t place = 0; place <= length; ++place) {
      std::string bytes(length, '\0');
      if (place < length) bytes[place] = 1;
      EXPECT_TRUE(seen.insert(hash128(bytes)).second) << length << " " << place;
    }
  }
}

}  // namespace
}  // namespace attn
