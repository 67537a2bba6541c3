// Default tensors: rows that are told apart by values which no order of numbers tells apart.
#include "compiler/reference/defaults.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/driver/driver.h"

namespace attn::reference {
namespace {

using ::testing::Each;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::int64_t kColumns = 64;  // rows as long as this are remembered

// The rows of `tensor t: f32[Hq, Skv] = VALUE`.
std::vector<std::vector<double>> rows_of(const std::string& value, std::int64_t rows) {
  const support::Source source(
      "x.attn", fmt::format("attention x {{\n  dims B = 1, Hq = {}, Sq = 8, Skv = {}, D = 8;\n"
                            "  tensor t: f32[Hq, Skv] = {};\n"
                            "  mask t[h, kv_idx] >= 0.0;\n}}\n",
                            rows, kColumns, value));
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention) << diag::to_text(sink);
  if (!attention) return {};
  const auto tensor = default_values(*attention, attention->tensors[0]);
  EXPECT_TRUE(tensor.ok());
  std::vector<std::vector<double>> all;
  if (!tensor.ok()) return all;
  for (auto begin = tensor->values.begin(); begin != tensor->values.end(); begin += kColumns) {
    all.emplace_back(begin, begin + kColumns);
  }
  return all;
}

TEST(DefaultsTest, RowsThatDependOnNan) {
  const auto rows = rows_of("i1 + log(float(i0) - 1)", 4);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[0], Each(::testing::IsNan()));
  EXPECT_THAT(rows[1], Each(-kInfinite));
  for (std::size_t row = 2; row < 4; ++row) {
    for (std::size_t i = 0; i < rows[row].size(); ++i) {
      const double offset = std::log(static_cast<double>(row) - 1);
      EXPECT_NEAR(rows[row][i], static_cast<double>(i) + offset, 1e-5);
    }
  }
}

TEST(DefaultsTest, RowsThatDependOnTheSignOfZero) {
  const auto rows = rows_of("(i1 + 1.0) / where(i0 % 2 == 0, 0.0, -0.0)", 4);
  ASSERT_EQ(rows.size(), 4U);
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_THAT(rows[row], Each(row % 2 == 0 ? kInfinite : -kInfinite)) << row;
  }
}

TEST(DefaultsTest, RowsThatAreEqual) {
  const auto rows = rows_of("(i1 + 1.0) * (i0 % 2)", 4);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0], rows[2]);
  EXPECT_EQ(rows[1], rows[3]);
  EXPECT_EQ(rows[3].back(), kColumns);
}

}  // namespace
}  // namespace attn::reference
