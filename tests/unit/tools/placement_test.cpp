#include "tools/placement.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "runtime/io/layout.h"

namespace attn::tools {
namespace {

// Fill value of memory without rows.
const double kUnused = std::bit_cast<float>(0x43434343U);

using plan::TensorRole;
using ::testing::ElementsAre;

// B 2, H 1, S 3, D 2; element (b, s, d) is 100 b + 10 s + d.
io::HostTensor rows() {
  io::HostTensor tensor{DType::f32, {2, 1, 3, 2}, {}};
  for (int b = 0; b < 2; ++b) {
    for (int i = 0; i < 6; ++i) tensor.values.push_back(100 * b + 10 * (i / 2) + i % 2);
  }
  return tensor;
}

std::vector<double> stored(const Placement& placement, const plan::TensorInfo& tensor) {
  const auto bytes = placement.bytes_of(tensor);
  EXPECT_TRUE(bytes.ok());
  const auto count = static_cast<std::int64_t>(bytes->size() / size_of(tensor.dtype));
  return io::unpack(*bytes, {count}, {1}, tensor.dtype)->values;
}

reference::Inputs lengths(const char* name, std::vector<double> values) {
  reference::Inputs inputs;
  inputs.tensors[name] = {DType::i32, {2}, std::move(values)};
  return inputs;
}

class ThdPlacement : public ::testing::Test {
 protected:
  ThdPlacement() {
    inputs_.tensors["q"] = rows();
    program_.tensors = {
        {"q", TensorRole::query, DType::f32, {2, 1, 3, 2}, {6, 2, 2, 1}, 16, "cu_seqlens_q"},
        {"cu_seqlens_q", TensorRole::control, DType::i32, {3}, {1}, 4},
        {"lse", TensorRole::stats, DType::f32, {2, 1, 3}, {3, 1, 1}, 16, "cu_seqlens_q"}};
  }
  reference::Inputs inputs_ = lengths("lengths_q", {1, 2});
  plan::Program program_;
};

TEST_F(ThdPlacement, RowsLieOneBehindTheOther) {
  const auto placement = Placement::create(program_, inputs_);
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(stored(*placement, program_.tensors[1]), ElementsAre(0, 1, 3));
  const std::vector<double> q = stored(*placement, program_.tensors[0]);
  EXPECT_THAT(std::vector(q.begin(), q.begin() + 6), ElementsAre(0, 1, 100, 101, 110, 111));
  for (std::size_t i = 6; i < q.size(); ++i) EXPECT_EQ(q[i], kUnused);
}

TEST_F(ThdPlacement, RowsThatAreNotThereSeeNothing) {
  const auto placement = Placement::create(program_, inputs_);
  const auto bytes = io::pack(std::vector<double>{1, 2, 3, 4, 5, 6}, {6}, {1}, DType::f32);
  const double nothing = -std::numeric_limits<double>::infinity();
  EXPECT_THAT(placement->logical(program_.tensors[2], *bytes)->values,
              ElementsAre(1, nothing, nothing, 2, 3, nothing));
  program_.tensors[2].name = "sum_exp";
  EXPECT_THAT(placement->logical(program_.tensors[2], *bytes)->values,
              ElementsAre(1, 0, 0, 2, 3, 0));
}

TEST_F(ThdPlacement, OfABackward) {
  inputs_.tensors["o"] = rows();
  program_.tensors = {
      {"cu_seqlens_q", TensorRole::control, DType::i32, {3}, {1}, 4},
      {"o", TensorRole::saved, DType::f32, {2, 1, 3, 2}, {6, 2, 2, 1}, 16, "cu_seqlens_q"},
      {"dq", TensorRole::gradient, DType::f32, {2, 1, 3, 2}, {6, 2, 2, 1}, 16, "cu_seqlens_q"}};
  const auto placement = Placement::create(program_, inputs_);
  ASSERT_TRUE(placement.ok());
  const std::vector<double> o = stored(*placement, program_.tensors[1]);
  EXPECT_THAT(std::vector(o.begin(), o.begin() + 6), ElementsAre(0, 1, 100, 101, 110, 111));
  const auto bytes = placement->bytes_of(program_.tensors[1]);
  EXPECT_THAT(placement->logical(program_.tensors[2], *bytes)->values,
              ElementsAre(0, 1, 0, 0, 0, 0, 100, 101, 110, 111, 0, 0));
}

TEST_F(ThdPlacement, ElementsWithoutARowMayBeAnything) {
  const auto placement = Placement::create(program_, inputs_, Unused::anything);
  const std::vector<double> q = stored(*placement, program_.tensors[0]);
  EXPECT_THAT(std::vector(q.begin(), q.begin() + 6), ElementsAre(0, 1, 100, 101, 110, 111));
  EXPECT_GT(q[6], 1e38);
  EXPECT_TRUE(std::isnan(q[8]) && std::isnan(q[9]));
  EXPECT_EQ(q[10], std::numeric_limits<double>::infinity());
}

TEST_F(ThdPlacement, RowsOfDenseTensorsPastTheLengthsMayBeAnything) {
  plan::TensorInfo dense = program_.tensors[0];
  dense.addressed_by.clear();
  const std::vector<double> as_given = stored(*Placement::create(program_, inputs_), dense);
  EXPECT_EQ(as_given, rows().values);
  const std::vector<double> q =
      stored(*Placement::create(program_, inputs_, Unused::anything), dense);
  for (std::size_t i = 0; i < q.size(); ++i) {
    const bool past = i / 2 % 3 >= (i < 6 ? 1 : 2);
    EXPECT_EQ(q[i] == as_given[i], !past) << i;
  }
}

class PagedPlacement : public ::testing::Test {
 protected:
  // A pool of `pages` pages of two rows.
  void use(std::int64_t pages, std::vector<double> columns) {
    inputs_ = lengths("lengths_kv", std::move(columns));
    inputs_.tensors["k"] = rows();
    program_.tensors = {
        {"k", TensorRole::key, DType::f32, {pages, 1, 2, 2}, {4, 4, 2, 1}, 16, "page_table"},
        {"page_table", TensorRole::control, DType::i32, {2, 2}, {2, 1}, 4}};
  }
  reference::Inputs inputs_;
  plan::Program program_;
};

TEST_F(PagedPlacement, RowsLieWhereTheTableSays) {
  use(4, {3, 1});
  const auto placement = Placement::create(program_, inputs_);
  ASSERT_TRUE(placement.ok());
  const std::vector<double> table = stored(*placement, program_.tensors[1]);
  const std::vector<double> pool = stored(*placement, program_.tensors[0]);
  const auto row = [&](std::size_t b, std::size_t s) {
    const auto page = static_cast<std::size_t>(table[2 * b + s / 2]);
    return pool[4 * page + 2 * (s % 2)];
  };
  EXPECT_THAT((std::vector{row(0, 0), row(0, 1), row(0, 2), row(1, 0)}),
              ElementsAre(0, 10, 20, 100));
  EXPECT_NE(table[0], 0) << "tables that are the identity show nothing";
  EXPECT_EQ(std::ranges::count_if(pool, [](double x) { return x == kUnused; }), 4 + 2);
}

TEST_F(PagedPlacement, PagesAndEntriesWithoutUseMayBeAnything) {
  use(4, {3, 1});
  const auto placement = Placement::create(program_, inputs_, Unused::anything);
  const std::vector<double> table = stored(*placement, program_.tensors[1]);
  EXPECT_EQ(std::ranges::count(table, 0), 0) << "page 0 is in use";
  EXPECT_EQ(table[3], 4) << "a page that is not there";
  const std::vector<double> pool = stored(*placement, program_.tensors[0]);
  EXPECT_TRUE(std::isnan(pool[0]) && std::isnan(pool[1]));
  EXPECT_EQ(pool[2], std::numeric_limits<double>::infinity());
}

TEST_F(PagedPlacement, TablesOfKAndVDiffer) {
  use(4, {3, 1});
  inputs_.tensors["v"] = rows();
  program_.tensors = {
      {"k", TensorRole::key, DType::f32, {4, 1, 2, 2}, {4, 4, 2, 1}, 16, "page_table_k"},
      {"v", TensorRole::value, DType::f32, {4, 1, 2, 2}, {4, 4, 2, 1}, 16, "page_table_v"},
      {"page_table_k", TensorRole::control, DType::i32, {2, 2}, {2, 1}, 4},
      {"page_table_v", TensorRole::control, DType::i32, {2, 2}, {2, 1}, 4}};
  const auto placement = Placement::create(program_, inputs_);
  ASSERT_TRUE(placement.ok());
  EXPECT_NE(stored(*placement, program_.tensors[2]), stored(*placement, program_.tensors[3]))
      << "a kernel that reads v by the table of k would not be found out";
}

TEST_F(PagedPlacement, PagesRunOut) {
  use(2, {3, 1});
  const auto placement = Placement::create(program_, inputs_);
  ASSERT_FALSE(placement.ok());
  EXPECT_EQ(placement.error().message, "the lengths need more pages than the 2 of `k`");
}

TEST_F(PagedPlacement, TensorsWithBoundStridesGetOthers) {
  use(4, {3, 1});
  EXPECT_EQ(with_other_strides(program_), program_);
  plan::Program bound = program_;
  for (plan::TensorInfo& tensor : bound.tensors) tensor.bound_strides = true;
  const plan::Program other = with_other_strides(bound);
  EXPECT_THAT(other.tensors[0].dims, ElementsAre(5, 1, 2, 2));
  EXPECT_THAT(other.tensors[0].strides, ElementsAre(36, 6, 12, 1));
  EXPECT_THAT(other.tensors[1].strides, ElementsAre(5, 1));
}

TEST(Placement, SeedsAreIntegersOf64Bits) {
  plan::Program program;
  program.tensors = {{"seed", TensorRole::control, DType::i64, {1}, {1}, 8}};
  reference::Inputs inputs;
  inputs.params["seed"] = 0x1p40;
  const auto placement = Placement::create(program, inputs);
  EXPECT_THAT(stored(*placement, program.tensors[0]), ElementsAre(0x1p40));
}

}  // namespace
}  // namespace attn::tools
