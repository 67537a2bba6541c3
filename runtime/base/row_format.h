// Rows of keys whose columns have several types, as inference engines store latent caches.
//
//   narrow columns   e4m3, a byte each
//   scales           f32, one for each block of narrow columns
//   wide columns     bf16
//
// A narrow column stands for its element times the scale of its block, a product in f32 that is
// rounded to bf16, a wide one for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace attn {

// A row of row_formats.def.
enum class RowFormat : std::uint8_t {
#define ATTN_ROW_FORMAT(name, narrow, block, wide, meaning) name,
#include "runtime/base/row_formats.def"
#undef ATTN_ROW_FORMAT
};

struct RowFormatInfo {
  std::string_view name;
  std::int64_t narrow, block, wide;  // columns; narrow is a multiple of block
  std::string_view meaning;

  std::int64_t columns() const { return narrow + wide; }
  std::int64_t scales() const { return narrow / block; }
  // Bytes: where scales and wide columns begin, and of a row.
  std::int64_t scales_at() const { return narrow; }
  std::int64_t wide_at() const { return narrow + 4 * scales(); }
  std::int64_t bytes() const { return wide_at() + 2 * wide; }
};

std::span<const RowFormatInfo> row_formats();  // in the order of RowFormat
const RowFormatInfo& info(RowFormat format);
std::string_view to_string(RowFormat format);
std::optional<RowFormat> parse_row_format(std::string_view text);

// Stores columns() numbers as bytes() bytes. The scale of a block is its largest magnitude / 448,
// rounded to f32, 1 if all of it is 0; elements are rounded to nearest even. A block with NaN or
// infinity is NaN.
void store_row(RowFormat format, std::span<const double> row, std::byte* bytes);
// The numbers that such bytes stand for.
void load_row(RowFormat format, const std::byte* bytes, std::span<double> row);

}  // namespace attn
