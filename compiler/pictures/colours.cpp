#include "compiler/pictures/colours.h"

#include <iterator>

namespace attn::pictures {
namespace {

constexpr Colour rgb(std::uint32_t number) {
  return {static_cast<std::uint8_t>(number >> 16), static_cast<std::uint8_t>(number >> 8),
          static_cast<std::uint8_t>(number)};
}

struct Row {
  std::uint32_t light, dark;
};

constexpr Row kRows[] = {
    {0xffffff, 0x0f141c},  // paper
    {0xd5dbe5, 0x2b3442},  // edge
    {0x1a2230, 0xe8ecf3},  // text
    {0x667085, 0x98a2b3},  // faint
    {0xe9edf4, 0x232c3a},  // empty
    {0x2f5fd0, 0x5b8def},  // full
    {0xf2a93b, 0xf0b65a},  // partial
    {0xd92d20, 0xf97066},  // not_a_number
    {0xfbdfb5, 0x5c4a2c},  // in_vain
    {0x7a7f8c, 0xa8adba},  // several
    // viridis, which orders colours by lightness for every kind of sight, on both papers
    {0x440154, 0x440154},
    {0x481a6c, 0x481a6c},
    {0x472f7d, 0x472f7d},
    {0x414487, 0x414487},
    {0x39568c, 0x39568c},
    {0x31688e, 0x31688e},
    {0x2a788e, 0x2a788e},
    {0x23888e, 0x23888e},
    {0x1f988b, 0x1f988b},
    {0x22a884, 0x22a884},
    {0x35b779, 0x35b779},
    {0x54c568, 0x54c568},
    {0x7ad151, 0x7ad151},
    {0xa5db36, 0xa5db36},
    {0xd2e21b, 0xd2e21b},
    {0xfde725, 0xfde725},
    // parts: Okabe and Ito's colours, which differ for every kind of sight
    {0x0072b2, 0x4da3d9},
    {0xe69f00, 0xf0b53c},
    {0x009e73, 0x2fbf96},
    {0xcc79a7, 0xdd94bd},
    {0x56b4e9, 0x86cbf2},
    {0xd55e00, 0xee8444},
    {0xc9b900, 0xf0e442},
    // the same, a third as strong
    {0xaad0e6, 0x244458},
    {0xf7dfaa, 0x5a4a22},
    {0xaadfd0, 0x1a4d45},
    {0xefd3e4, 0x543f52},
    {0xcce9f8, 0x375060},
    {0xf2c9aa, 0x593929},
    {0xeee9aa, 0x5a5a23},
    // on parts
    {0x000000, 0x000000},
};
static_assert(std::size(kRows) == kInks);

}  // namespace

Colour colour_of(Ink ink, Theme theme) {
  const Row& row = kRows[static_cast<std::size_t>(ink)];
  return rgb(theme == Theme::light ? row.light : row.dark);
}

}  // namespace attn::pictures
