// Writes whole files: plans, tensors, pictures, specs.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn {

// Replaces a file, or makes a new one with these permissions, subject to the umask; an old file's
// are kept, and links are followed. Readers, a full disk and the end of the process leave the old
// file or the whole new one; what is no regular file, such as /dev/stdout, is written to as it is.
// Errors: io, with the path.
Status replace_file(const std::string& path, std::string_view bytes, mode_t mode = 0666);

}  // namespace attn
