// Whole files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace attn::io {

// Errors: io, with the path and the system's words.
Result<std::vector<std::byte>> read_file(const std::string& path);

// Replaces what is there. Errors: io.
Status write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace attn::io
