// Specs that mean something: random, well-typed scores and masks over every operator, function and
// element type of the language, whose values a device can be compared on. Every index stays inside
// its tensor, every function inside its domain, magnitudes are small, and what jumps (floor, a
// comparison) jumps where rounding in f32 cannot change the side.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::fuzz {

// A DSL text with all dimensions and a default for each integer tensor. When the bytes end, every
// further decision is the simplest one.
std::string typed_spec_of(std::span<const std::uint8_t> decisions);

// As many decisions as a spec takes: the same for equal numbers.
std::string typed_decisions(std::uint64_t number);
std::string typed_spec(std::uint64_t number);

}  // namespace attn::fuzz
