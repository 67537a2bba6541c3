// Text helpers of the front end: UTF-8, quoting for messages, and did-you-mean.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::support {

// Larger specs are rejected, so that time and memory are bounded for every input.
inline constexpr std::size_t kMaxSourceBytes = 1 << 20;

// Whether `text` begins with the byte order mark of UTF-16.
bool has_utf16_mark(std::string_view text);
// False for UTF-16 and for text with zero bytes.
bool is_text(std::string_view text);

// Bytes of the first code point of `text`, which must not be empty; 1 for a byte that is not UTF-8.
std::size_t code_point_bytes(std::string_view text);
// Whether those bytes are well-formed UTF-8 and not a control character.
bool is_printable(std::string_view code_point);

// `text` for a message: unprintable bytes as \xNN, long text shortened.
std::string printable(std::string_view text);

// printable() in backticks.
std::string quoted(std::string_view text);

// "1 argument", "3 arguments"
std::string count_of(std::size_t count, std::string_view noun);

// "`a`", "`a` or `b`", "`a`, `b` or `c`".
std::string one_of(std::span<const std::string_view> words);

// "[2,8,128,256]"
std::string dims_text(std::span<const std::int64_t> dims);

// The candidate that `word` is most likely a misspelling of (fewest edits, then first), or "".
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// An amount and the limit that it exceeds.
struct Excess {
  std::string amount;  // "68.8 GB"
  std::string most;    // "68.7 GB"
};

// Both numbers in GB, with just enough digits to differ: never "69 GB, at most 69 GB".
Excess excess(double bytes, double most);

}  // namespace attn::support
