// SHA-256 (FIPS 180-4), for verifying content. For a fast content hash use hash.h.
#pragma once

#include <string>
#include <string_view>

namespace attn {

// 64 lower-case hexadecimal digits, as sha256sum prints.
std::string sha256_hex(std::string_view bytes);

}  // namespace attn
