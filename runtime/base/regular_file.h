// Reads whole files: specs, plans, tensors, targets.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn {

// Opens a regular file for reading. Rejects FIFOs and devices without opening them: a FIFO blocks
// until a writer appears, and a device may be endless or act on being opened. Errors: io, with the
// path.
Result<FileDescriptor> open_regular_file(const std::string& path);

// Appends the next `size` bytes, or fewer at the end of the file, to `bytes`; retries short reads.
// Errors: io, with the path.
Status read_more(const FileDescriptor& file, const std::string& path, std::size_t size,
                 std::string& bytes);

// The first `limit` bytes of a regular file. Errors: io.
Result<std::string> read_regular_file(const std::string& path, std::size_t limit);

}  // namespace attn
