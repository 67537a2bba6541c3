#include "runtime/base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace attn {

std::string Hash128::to_hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash128(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

}  // namespace attn
