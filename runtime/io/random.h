// Random test data, identical on every machine.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace attn::io {

// The 64-bit word number `index` of stream `seed`: SplitMix64 (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014), whose state after n steps is known in closed form,
// so any element can be computed directly.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t index);

// Standard normal values by the Box-Muller transform: values 2i and 2i+1 are
//   sqrt(-2 ln u1) * (cos, sin)(2 pi u2),  u1 = (w >> 11 + 1) / 2^53,  u2 = (w' >> 11) / 2^53
// with w, w' the words 2i and 2i+1. Each is rounded to f32, which hides last-bit differences
// between C libraries in log, sin and cos.
std::vector<double> normal_values(std::uint64_t seed, std::int64_t count);

// The default seed of named data; different names give unrelated data.
std::uint64_t seed_of(std::string_view name);

}  // namespace attn::io
