// Texts of specs with masks of the kinds that have parts, and of others: chunks, residues, windows,
// prefixes, bounds of one side, their unions and what they hide; with changes of the score that go
// with them or do not.
#pragma once

#include <cstdint>
#include <string>

namespace attn::testing {

// In f16, with grad q, k, v. The same text for the same seed and `longest`, the most rows or
// columns, where the compiler is the same.
std::string random_spec(std::uint64_t seed, std::int64_t longest = 200);

}  // namespace attn::testing
