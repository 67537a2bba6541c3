// What cuDNN and the GPU can do (capabilities.def).
#pragma once

#include <cstdint>

#include "compiler/target/context.h"

namespace attn::target {

enum class Capability : std::uint8_t {
#define ATTN_CAPABILITY(name, ...) name,
#include "compiler/target/capabilities.def"
};

// The value for the context's GPU and cuDNN version; for an unknown version, that of the newest.
std::int64_t limit(Capability capability, const Context& context);

// Whether the GPU has a capability whose limit is 0 or 1.
inline bool can(Capability capability, const Context& context) {
  return limit(capability, context) != 0;
}

}  // namespace attn::target
