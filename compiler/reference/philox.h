// Random bits of dropout: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace attn::reference {

// Ten rounds; the counter and the key with their lowest word first.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// What dropout keeps: element `index` of the weights [B, Hq, Sq, Skv], counted row-major. The bits
// are word index % 4 of the block whose counter is (index / 4, offset) and whose key is the seed;
// they are kept when they are, as a fraction of 2^32, at least `probability`.
bool is_kept(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, double probability);

}  // namespace attn::reference
