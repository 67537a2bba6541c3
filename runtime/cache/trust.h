// Plans are code, so the cache reads only files that this user or root has written.
// Internal to runtime/cache.
#pragma once

#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn::cache {

// Opens the folder if it is owned by this user or root and nobody else may write to it. `path` may
// be a link; its target is checked. Errors: io, naming the owner or the mode.
Result<FileDescriptor> open_trusted_folder(const std::string& path);

// The same for the regular file at `path`, which must not be a link; checks its folder too.
Result<FileDescriptor> open_trusted_file(const std::string& path);

}  // namespace attn::cache
