// Generates random, well-typed specs with every operator, function and element type of the
// language, whose values can be compared between a device and the reference: indices stay inside
// their tensors, arguments inside the domains of functions, magnitudes are small, and
// discontinuities (floor, comparisons) are where rounding in f32 does not change the result.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::fuzz {

// Returns DSL text with all dimensions bound and a default for each integer tensor. Past the end of
// the bytes every decision is the simplest one.
std::string typed_spec_of(std::span<const std::uint8_t> decisions);

// Sizes of an attention, within which indices stay.
struct TypedSizes {
  std::int64_t batch = 1, heads = 1, key_heads = 1, rows = 1, columns = 1;
};

// Tensors, a score and masks for an attention of these sizes, whose names begin with `_`. They read
// the spec parameter _w.
std::string typed_clauses(std::span<const std::uint8_t> decisions, const TypedSizes& sizes,
                          bool bottom_right);

// Deterministic decisions for spec `number`, and the spec made from them.
std::string typed_decisions(std::uint64_t number);
std::string typed_spec(std::uint64_t number);

}  // namespace attn::fuzz
