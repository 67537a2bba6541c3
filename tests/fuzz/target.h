// What a fuzz target offers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

// libFuzzer's entry point. Returns 0; a property that does not hold, and any crash, ends the
// process.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attn::fuzz {

// Inputs that the driver's mutations start from, and pieces that they put in.
std::vector<std::string> seeds();
const std::vector<std::string>& words();

// For a target that makes its input out of the bytes: says that it is made. The driver counts time
// and memory from there on.
inline void (*input_is_made)() = [] {};

// Aborts, so that libFuzzer and the driver both keep the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace attn::fuzz
