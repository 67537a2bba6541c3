// Whole files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::io {

// Of a regular file. Errors: io, with the path and the system's words, also for FIFOs and devices.
// One that does not begin with `magic` is read no further than that.
Result<std::vector<std::byte>> read_file(const std::string& path, std::string_view magic = {});

// Replaces what is there. Errors: io.
Status write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace attn::io
