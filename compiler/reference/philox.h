// Random bits of dropout: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace attn::reference {

// Ten rounds; the counter and the key with their lowest word first.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// Whether dropout keeps element `index`, counted row-major, of the weights [B, Hq, Sq, Skv]. Its
// bits are word index % 4 of the block with counter (index / 4, offset) and the seed as key; it is
// kept if they are, as a fraction of 2^32, at least `probability`.
bool is_kept(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, double probability);

}  // namespace attn::reference
