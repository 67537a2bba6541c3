// Generates specs from decisions: every sequence of bytes gives one. Most are well-formed, many are
// semantically valid.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::fuzz {

// Returns DSL text. Past the end of the bytes every decision is the simplest one.
std::string spec_of(std::span<const std::uint8_t> decisions);

}  // namespace attn::fuzz
