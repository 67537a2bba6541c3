#include "runtime/base/row_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/dtype.h"

namespace attn {
namespace {

constexpr RowFormatInfo kFormats[] = {
#define ATTN_ROW_FORMAT(name, narrow, block, wide, meaning) {#name, narrow, block, wide, meaning},
#include "runtime/base/row_formats.def"
#undef ATTN_ROW_FORMAT
};

// At least 2^-126: elements are divided by it.
float scale_of(std::span<const double> block) {
  double largest = 0;
  for (const double value : block) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(value));
  }
  if (largest == 0) return 1;
  const auto scale = static_cast<float>(largest / max_finite(DType::e4m3));
  return std::max(scale, std::numeric_limits<float>::min());
}

template <typename Value>
void put(Value value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}
template <typename Value>
Value get(const std::byte* from) {
  Value value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

std::span<const RowFormatInfo> row_formats() { return kFormats; }

const RowFormatInfo& info(RowFormat format) { return kFormats[static_cast<std::size_t>(format)]; }

std::string_view to_string(RowFormat format) { return info(format).name; }

std::optional<RowFormat> parse_row_format(std::string_view text) {
  const auto* found = std::ranges::find(kFormats, text, &RowFormatInfo::name);
  if (found == std::end(kFormats)) return std::nullopt;
  return static_cast<RowFormat>(found - std::begin(kFormats));
}

void store_row(RowFormat format, std::span<const double> row, std::byte* bytes) {
  const RowFormatInfo& of = info(format);
  for (std::int64_t n = 0; n < of.scales(); ++n) {
    const auto first = static_cast<std::size_t>(n * of.block);
    const auto block = row.subspan(first, static_cast<std::size_t>(of.block));
    const float scale = scale_of(block);
    put(scale, bytes + of.scales_at() + 4 * n);
    for (std::size_t i = 0; i < block.size(); ++i)
      put(to_fp8_bits(DType::e4m3, block[i] / static_cast<double>(scale)), bytes + first + i);
  }
  for (std::int64_t i = 0; i < of.wide; ++i)
    put(to_bf16_bits(row[static_cast<std::size_t>(of.narrow + i)]), bytes + of.wide_at() + 2 * i);
}

void load_row(RowFormat format, const std::byte* bytes, std::span<double> row) {
  const RowFormatInfo& of = info(format);
  for (std::int64_t i = 0; i < of.narrow; ++i) {
    const auto scale = get<float>(bytes + of.scales_at() + 4 * (i / of.block));
    // In f32, as kernels: a product of more bits may be rounded otherwise.
    const auto element =
        static_cast<float>(from_fp8_bits(DType::e4m3, get<std::uint8_t>(bytes + i)));
    row[static_cast<std::size_t>(i)] = round_to(DType::bf16, element * scale);
  }
  for (std::int64_t i = 0; i < of.wide; ++i) {
    row[static_cast<std::size_t>(of.narrow + i)] =
        from_bf16_bits(get<std::uint16_t>(bytes + of.wide_at() + 2 * i));
  }
}

}  // namespace attn
