// Specs made of decisions: every sequence of bytes is one, most of them well-formed, many of them
// with a meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::fuzz {

// A DSL text; when the bytes end, every further decision is the simplest one.
std::string spec_of(std::span<const std::uint8_t> decisions);

}  // namespace attn::fuzz
