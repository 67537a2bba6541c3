// Bytes as text, for attributes that programs of XLA keep as text. Internal to python/native/xla.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attn::xla {

// The bytes that a text in base64 (RFC 4648, with padding) stands for; nothing if it is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace attn::xla
