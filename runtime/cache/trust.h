// Plans are code, so what the cache reads can only have been put there by this user or by root.
// Private to this room.
#pragma once

#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn::cache {

// The folder, open, when it belongs to this user or root and nobody else may write to it. The path
// may be a link: what it leads to counts. Errors: io, saying whose it is or who may write.
Result<FileDescriptor> open_trusted_folder(const std::string& path);

// The regular file at `path`, for which the same holds, as for the folder that it lies in. No link.
Result<FileDescriptor> open_trusted_file(const std::string& path);

}  // namespace attn::cache
