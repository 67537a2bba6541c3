// The header of a .npy file: a Python dict literal with three keys. Internal to runtime/io.
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

// Accepts what NumPy writes: the keys in any order, each once, with spaces and trailing commas
// where Python allows them. Errors: io.
Result<NpyHeader> parse_npy_header(std::string_view text);

// The header without padding and newline.
std::string format_npy_header(const NpyHeader& header);

}  // namespace attn::io
