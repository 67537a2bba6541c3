// The stub driver library of runtime/nodriver, embedded in this program.
#pragma once

#include "runtime/base/status.h"

namespace attn::worker {

// Makes later look-ups of libcuda.so.1 in this process find the embedded library: the dynamic
// linker reuses a loaded library with a matching SONAME. Call it before cuDNN is loaded. Errors:
// worker (memory file or loading refused, or another driver is already loaded).
Status load_nodriver();

}  // namespace attn::worker
