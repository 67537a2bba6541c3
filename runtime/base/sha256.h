// SHA-256 (FIPS 180-4): for who must know that bytes are the ones that were meant. What only has to
// tell bytes apart uses hash.h.
#pragma once

#include <string>
#include <string_view>

namespace attn {

// 64 hexadecimal digits in lower case, as sha256sum prints them.
std::string sha256_hex(std::string_view bytes);

}  // namespace attn
