// Generates random specs of 8-bit attention whose values can be compared between a device and the
// reference: scales neither saturate nor make most values vanish. They have what kernels of 8 bits
// may have, types, scales, sizes, layouts, bands and lengths, and now and then what they lack.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::fuzz {

// Returns DSL text with all dimensions bound. Past the end of the bytes every decision is the
// simplest one.
std::string quantized_spec_of(std::span<const std::uint8_t> decisions);

// Spec `number`, of typed_decisions.
std::string quantized_spec(std::uint64_t number);

}  // namespace attn::fuzz
