// The header of a .npy file: a Python dict literal with three keys. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::io {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Accepts what NumPy writes: the keys in any order, each once, spaces and trailing commas anywhere
// Python allows them. Errors: io.
Result<NpyHeader> parse_npy_header(std::string_view text);

// Without padding and newline.
std::string format_npy_header(const NpyHeader& header);

}  // namespace attn::io
