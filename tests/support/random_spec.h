// Generates specs with random masks that can be split into parts, and others: chunks, residues,
// windows, prefixes, one-sided bounds, and their unions and complements. Scores may be modified.
#pragma once

#include <cstdint>
#include <string>

namespace attn::testing {

// Returns a spec in f16 with grad q, k, v, with at most `longest` rows and columns. The text is the
// same for the same seed and `longest`, if compiled by the same C++ compiler.
std::string random_spec(std::uint64_t seed, std::int64_t longest = 200);

}  // namespace attn::testing
