// The colours of pictures, for light and dark paper.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::pictures {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

enum class Ink : std::uint8_t {
  paper,
  edge,
  text,
  faint,
  empty,
  full,
  partial,
  not_a_number,
  in_vain,  // computed, but hidden
  several,  // parts
  first_change
};

// Changes of the score, from the least to the most; then parts, in turn, what they compute in vain,
// and text on them.
inline constexpr std::size_t kChanges = 16;
inline constexpr std::size_t kParts = 7;
inline constexpr std::size_t kFirstPart = static_cast<std::size_t>(Ink::first_change) + kChanges;
inline constexpr Ink kOnPart = static_cast<Ink>(kFirstPart + 2 * kParts);
inline constexpr std::size_t kInks = kFirstPart + 2 * kParts + 1;

inline constexpr Ink change_ink(std::size_t step) {
  return static_cast<Ink>(static_cast<std::size_t>(Ink::first_change) + step);
}
inline constexpr Ink part_ink(std::size_t part) {
  return static_cast<Ink>(kFirstPart + part % kParts);
}
inline constexpr Ink tint_of_part(std::size_t part) {
  return static_cast<Ink>(kFirstPart + kParts + part % kParts);
}

// Whether it says that scores are computed, but hidden.
inline constexpr bool is_in_vain(Ink ink) {
  return ink == Ink::in_vain ||
         (static_cast<std::size_t>(ink) >= kFirstPart + kParts && ink < kOnPart);
}

enum class Theme : std::uint8_t { light, dark };
Colour colour_of(Ink ink, Theme theme);

}  // namespace attn::pictures
