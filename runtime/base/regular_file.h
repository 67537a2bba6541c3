// Files that are read as a whole: specs, plans, tensors, targets.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn {

// A regular file, opened for reading. A FIFO waits for somebody who writes, a device may have no
// end and may act on being opened, so these are refused, without waiting. Errors: io, with the
// path.
Result<FileDescriptor> open_regular_file(const std::string& path);

// Up to `size` bytes behind what was read before, in as many reads as it takes, appended to
// `bytes`. Errors: io, with the path.
Status read_more(const FileDescriptor& file, const std::string& path, std::size_t size,
                 std::string& bytes);

// The first `limit` bytes of a regular file. Errors: io.
Result<std::string> read_regular_file(const std::string& path, std::size_t limit);

}  // namespace attn
