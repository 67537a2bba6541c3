// The driver library of runtime/nodriver, carried inside this program.
#pragma once

#include "runtime/base/status.h"

namespace attn::worker {

// Makes every later look-up of libcuda.so.1 in this process find the carried one: the dynamic
// linker takes a library that is loaded already when its SONAME matches. Must come before cuDNN
// is loaded. Errors: worker (memory file or loading refused, or another driver is loaded already).
Status load_nodriver();

}  // namespace attn::worker
