// Interface of a fuzz target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

// libFuzzer's entry point. Returns 0. A violated property ends the process, as a crash does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attn::fuzz {

// Inputs to mutate, and pieces that mutations insert.
std::vector<std::string> seeds();
const std::vector<std::string>& words();

// Called by targets that build their input from the bytes, when it is built. The driver measures
// time and memory from there on.
inline void (*input_is_made)() = [] {};

// Aborts if false, so that libFuzzer and the driver save the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace attn::fuzz
