// Reads and writes whole files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::io {

// Reads a regular file. A file that does not begin with `magic` is read no further than that.
// Errors: io, with the path and the system's text, also for FIFOs and devices.
Result<std::vector<std::byte>> read_file(const std::string& path, std::string_view magic = {});

// Replaces an existing file, or makes a new one, at once (attn::replace_file). Errors: io.
Status write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace attn::io
