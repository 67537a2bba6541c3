// The order in which blocks of threads take tiles of several units (heads that share keys, of all
// batches): long tiles first, so that the last ones to end are short; and in sections of units,
// whose keys stay in the L2 cache while blocks of threads walk them side by side.
//
//   front     the kFront longest tiles of each unit
//   sections  of kSection units; in each, the longest tiles of all its units first
#pragma once

namespace kernels {

struct UnitTile {
  int unit;
  int place;  // of the tile in the unit's list
};

// The n-th of kUnits * kTiles, of which each comes once. kFront is less than kTiles.
template <int kUnits, int kTiles, int kSection, int kFront>
__device__ UnitTile tile_in_sections(int n) {
  constexpr int kFirst = kFront * kUnits, kOfSection = kSection * (kTiles - kFront);
  if (kFront > 0 && n < kFirst) return {n % kUnits, n / kUnits};
  const int section = (n - kFirst) / kOfSection, first = section * kSection;
  const int left = kUnits - first, units = left < kSection ? left : kSection;
  const int within = n - kFirst - section * kOfSection;
  return {first + within % units, kFront + within / units};
}

}  // namespace kernels
