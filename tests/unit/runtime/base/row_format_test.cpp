#include "runtime/base/row_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::row_format_tests {
namespace {

constexpr RowFormat kFormat = RowFormat::fp8_ds_mla;

struct Stored {
  std::vector<std::byte> bytes;
  std::vector<double> row;
};
Stored stored(const std::vector<double>& row) {
  Stored made{std::vector<std::byte>(static_cast<std::size_t>(info(kFormat).bytes())),
              std::vector<double>(row.size())};
  store_row(kFormat, row, made.bytes.data());
  load_row(kFormat, made.bytes.data(), made.row);
  return made;
}

template <typename Value>
Value at(const Stored& stored, std::size_t byte) {
  Value value;
  std::memcpy(&value, &stored.bytes[byte], sizeof value);
  return value;
}

TEST(RowFormat, HasPartsBehindEachOther) {
  const RowFormatInfo& of = info(kFormat);
  EXPECT_EQ(of.columns(), 576);
  EXPECT_EQ(of.scales_at(), 512);
  EXPECT_EQ(of.wide_at(), 528);
  EXPECT_EQ(of.bytes(), 656);
  EXPECT_EQ(parse_row_format("fp8_ds_mla"), kFormat);
  EXPECT_EQ(parse_row_format("fp8"), std::nullopt);
}

TEST(RowFormat, ScalesBlocksByTheirLargest) {
  std::vector<double> row(576, 0.5);
  row[3] = -28, row[130] = 448, row[575] = 1.00390625;
  for (std::size_t i = 256; i < 384; ++i) row[i] = 0;
  const Stored made = stored(row);
  EXPECT_EQ(at<float>(made, 512), 28.0f / 448);
  EXPECT_EQ(at<float>(made, 516), 1.0f);
  EXPECT_EQ(at<float>(made, 520), 1.0f);
  EXPECT_EQ(static_cast<int>(made.bytes[3]), 0xfe);  // -448
  EXPECT_EQ(made.row[3], -28);
  EXPECT_EQ(made.row[0], 0.5);
  EXPECT_EQ(made.row[300], 0);
  EXPECT_EQ(made.row[575], 1);  // ties to even
}

TEST(RowFormat, LoadsColumnsOfBf16) {
  std::vector<double> row(576);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<double>(i * i)) * 3;
  const Stored made = stored(row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(made.row[i], round_to(DType::bf16, made.row[i]));
    EXPECT_NEAR(made.row[i], row[i], std::abs(row[i]) * (1.0 / 16 + 1.0 / 256) + 3.0 / 448 / 512);
  }
}

TEST(RowFormat, KeepsWhatIsNotFiniteInItsBlock) {
  std::vector<double> row(576, 1e-42);
  row[200] = std::numeric_limits<double>::infinity();
  const Stored made = stored(row);
  EXPECT_TRUE(std::isnan(made.row[128]));
  EXPECT_NEAR(made.row[0], 1e-42, 1e-38);
  EXPECT_FALSE(std::isnan(made.row[256]));
}

}  // namespace
}  // namespace attn::row_format_tests
