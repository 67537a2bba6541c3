#include "base64.h"

#include <array>
#include <cstdint>

namespace attn::xla {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kBitsOfDigit = 6;
constexpr int kBitsOfByte = 8;

constexpr std::array<int, 256> values_of_digits() {
  std::array<int, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  return values;
}

constexpr std::array<int, 256> kValues = values_of_digits();

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * kBitsOfDigit / kBitsOfByte);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char digit : text) {
    const int value = kValues[static_cast<unsigned char>(digit)];
    if (value < 0) return std::nullopt;
    held = held << kBitsOfDigit | static_cast<std::uint32_t>(value);
    bits += kBitsOfDigit;
    if (bits < kBitsOfByte) continue;
    bits -= kBitsOfByte;
    bytes.push_back(static_cast<char>(held >> bits & 0xff));
  }
  const bool clean = (held & ((1U << bits) - 1)) == 0;  // bits that make no byte are 0
  return clean ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace attn::xla
