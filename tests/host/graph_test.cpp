#include "tests/host/graph.h"

#include <gmock/gmock.h>

#include <cmath>

#include "runtime/io/element.h"

namespace attn::host {
namespace {

using graph::PointwiseMode;
using graph::Uid;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Dims = std::vector<std::int64_t>;

// Builds a graph of tensors in memory, with uids from 1.
class GraphTest : public ::testing::Test {
 protected:
  Uid tensor(DType dtype, Dims dims, Dims strides, const std::vector<double>& elements) {
    const Uid uid = virtual_tensor(std::move(dims), std::move(strides));
    graph_.tensors.back().dtype = dtype;
    graph_.tensors.back().storage = graph::Storage::device;
    std::vector<std::byte>& bytes = memory_[uid];
    bytes.resize(elements.size() * size_of(dtype));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      io::store(dtype, elements[i], bytes.data() + i * size_of(dtype));
    }
    return uid;
  }
  Uid virtual_tensor(Dims dims, Dims strides) {
    graph::Tensor& made = graph_.tensors.emplace_back();
    made.uid = static_cast<Uid>(graph_.tensors.size());
    made.dims = std::move(dims);
    made.strides = std::move(strides);
    return made.uid;
  }
  // [1,1,rows,columns] of f32, row-major; NaN if no elements are given.
  Uid matrix(std::int64_t rows, std::int64_t columns, std::vector<double> elements = {}) {
    elements.resize(static_cast<std::size_t>(rows * columns), NAN);
    return tensor(DType::f32, {1, 1, rows, columns}, {rows * columns, rows * columns, columns, 1},
                  elements);
  }
  void pointwise(PointwiseMode mode, Uid x, std::optional<Uid> b, Uid y, DType compute = DType::f32,
                 std::optional<Uid> t = {}, std::optional<std::int64_t> axis = {}) {
    graph_.nodes.emplace_back(graph::Pointwise{mode, compute, x, b, t, y, axis, {}});
  }

  std::vector<double> run(Uid result) {
    std::map<Uid, Operand> operands;
    for (auto& [uid, bytes] : memory_) operands[uid] = std::span(bytes);
    const Status status = host::run(graph_, operands);
    EXPECT_TRUE(status.ok()) << status.error().to_text();
    const DType dtype = graph_.find(result)->dtype;
    std::vector<double> values;
    for (std::size_t i = 0; i < memory_[result].size(); i += size_of(dtype)) {
      values.push_back(io::load(dtype, memory_[result].data() + i));
    }
    return values;
  }

  graph::BackendGraph graph_;
  std::map<Uid, std::vector<std::byte>> memory_;
};

TEST_F(GraphTest, ProductsOfTurnedViews) {
  const Uid a = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  const Uid b = tensor(DType::f32, {1, 1, 3, 2}, {6, 6, 1, 3}, {1, 0, 2, 0, 1, 1});
  const Uid c = matrix(2, 2);
  graph_.nodes.emplace_back(graph::Matmul{a, b, c, DType::f32, {}, {}, {}, {}});
  EXPECT_THAT(run(c), ElementsAre(7, 5, 16, 11));
}

TEST_F(GraphTest, ProductsEndWhereBatchesDo) {
  const Uid a = tensor(DType::f32, {2, 1, 2, 2}, {4, 4, 2, 1}, {1, 1, 1, 1, 1, NAN, NAN, NAN});
  const Uid b = tensor(DType::f32, {2, 1, 2, 1}, {2, 2, 1, 1}, {2, 3, 4, NAN});
  const Uid c = tensor(DType::f32, {2, 1, 2, 1}, {2, 2, 1, 1}, {NAN, NAN, NAN, NAN});
  const Uid sizes = tensor(DType::i32, {2, 1, 1, 1}, {1, 1, 1, 1}, {2, 1});
  const Uid columns = tensor(DType::i32, {2, 1, 1, 1}, {1, 1, 1, 1}, {1, 1});
  graph_.nodes.emplace_back(graph::Matmul{a, b, c, DType::f32, {}, sizes, columns, sizes});
  EXPECT_THAT(run(c), ElementsAre(5, 5, 4, 0));
}

TEST_F(GraphTest, HeadsShareKeys) {
  const Uid a = tensor(DType::f32, {1, 4, 1, 1}, {4, 1, 1, 1}, {1, 2, 3, 4});
  const Uid b = tensor(DType::f32, {1, 2, 1, 1}, {2, 1, 1, 1}, {10, 100});
  const Uid c = tensor(DType::f32, {1, 4, 1, 1}, {4, 1, 1, 1}, {0, 0, 0, 0});
  const Uid sum = tensor(DType::f32, {1, 2, 1, 1}, {2, 1, 1, 1}, {0, 0});
  graph_.nodes.emplace_back(graph::Matmul{a, b, c, DType::f32, {}, {}, {}, {}});
  graph_.nodes.emplace_back(graph::Reduction{graph::ReduceOp::add, DType::f32, c, sum, {}});
  EXPECT_THAT(run(c), ElementsAre(10, 20, 300, 400));
  EXPECT_THAT(run(sum), ElementsAre(30, 700));
}

TEST_F(GraphTest, OperandsOfOneRowOrColumnAreRepeated) {
  const Uid x = matrix(2, 2, {1, 2, 3, 4});
  const Uid row = matrix(1, 2, {10, 20}), column = matrix(2, 1, {100, 200});
  const Uid by_row = matrix(2, 2), both = matrix(2, 2);
  pointwise(PointwiseMode::add, x, row, by_row);
  pointwise(PointwiseMode::add, by_row, column, both);
  EXPECT_THAT(run(both), ElementsAre(111, 122, 213, 224));
}

TEST_F(GraphTest, IndicesAndSelects) {
  const Uid x = matrix(2, 2, {1, 2, 3, 4}), hidden = matrix(1, 1, {-kInfinity});
  const auto of = [&](DType dtype) {
    return tensor(dtype, {1, 1, 2, 2}, {4, 4, 2, 1}, {0, 0, 0, 0});
  };
  const Uid rows = of(DType::i32), columns = of(DType::i32), shown = of(DType::boolean);
  const Uid y = matrix(2, 2);
  pointwise(PointwiseMode::gen_index, x, {}, rows, DType::f32, {}, 2);
  pointwise(PointwiseMode::gen_index, x, {}, columns, DType::f32, {}, 3);
  pointwise(PointwiseMode::cmp_ge, rows, columns, shown, DType::boolean);
  pointwise(PointwiseMode::binary_select, x, hidden, y, DType::f32, shown);
  EXPECT_THAT(run(rows), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(run(columns), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(run(y), ElementsAre(1, -kInfinity, 3, 4));
}

TEST_F(GraphTest, IntegersWrapAndTruncate) {
  const auto integers = [&](const std::vector<double>& values) {
    return tensor(DType::i32, {1, 1, 1, 3}, {3, 3, 3, 1}, values);
  };
  const Uid x = integers({-7, 7, INT32_MAX}), b = integers({2, 2, 2});
  const Uid quotient = integers({0, 0, 0}), rest = integers({0, 0, 0}), sum = integers({0, 0, 0});
  pointwise(PointwiseMode::div, x, b, quotient, DType::i32);
  pointwise(PointwiseMode::mod, x, b, rest, DType::i32);
  pointwise(PointwiseMode::add, x, b, sum, DType::i32);
  EXPECT_THAT(run(quotient), ElementsAre(-3, 3, INT32_MAX / 2));
  EXPECT_THAT(run(rest), ElementsAre(-1, 1, 1));
  EXPECT_THAT(run(sum), ElementsAre(-5, 9, INT32_MIN + 1.0));
}

TEST_F(GraphTest, ValuesAreRoundedAsTheyAreStored) {
  const Uid x = matrix(1, 1, {1}), b = matrix(1, 1, {1.0 / 512});
  const Uid y = tensor(DType::bf16, {1, 1, 1, 1}, {1, 1, 1, 1}, {0});
  const Uid back = matrix(1, 1);
  pointwise(PointwiseMode::add, x, b, y);
  pointwise(PointwiseMode::identity, y, {}, back);
  EXPECT_THAT(run(back), ElementsAre(1));
}

TEST_F(GraphTest, TurnedMatrices) {
  const Uid x = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  const Uid turned = virtual_tensor({1, 1, 3, 2}, {6, 6, 1, 3});
  const Uid y = matrix(3, 2);
  graph_.nodes.emplace_back(graph::Reshape{x, turned, {}});
  pointwise(PointwiseMode::identity, turned, {}, y);
  EXPECT_THAT(run(y), ElementsAre(1, 4, 2, 5, 3, 6));
}

// The second batch has one row: memory after it is not read or written.
TEST_F(GraphTest, RaggedRows) {
  const Uid starts = tensor(DType::i32, {3, 1, 1, 1}, {1, 1, 1, 1}, {0, 2, 3});
  const auto ragged = [&](const std::vector<double>& values) {
    const Uid uid = tensor(DType::f32, {2, 1, 2, 1}, {2, 2, 1, 1}, values);
    graph_.tensors.back().ragged = starts;
    return uid;
  };
  const Uid x = ragged({1, 2, 3, 99}), y = ragged({0, 0, 0, 77});
  const Uid dense = tensor(DType::f32, {2, 1, 2, 1}, {2, 2, 1, 1}, {0, 0, 0, 0});
  pointwise(PointwiseMode::neg, x, {}, y);
  pointwise(PointwiseMode::identity, x, {}, dense);
  EXPECT_THAT(run(y), ElementsAre(-1, -2, -3, 77));
  EXPECT_THAT(run(dense), ElementsAre(1, 2, 3, IsNan()));
}

TEST_F(GraphTest, PagesByTheirTable) {
  const Uid pool = tensor(DType::f32, {2, 1, 2, 2}, {4, 4, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Uid table = tensor(DType::i32, {1, 1, 2, 1}, {2, 2, 1, 1}, {1, 0});
  const Uid lengths = tensor(DType::i32, {1, 1, 1, 1}, {1, 1, 1, 1}, {3});
  const Uid gathered = virtual_tensor({1, 1, 2, 4}, {8, 8, 1, 2});  // transposed
  const Uid y = matrix(2, 4);
  graph_.nodes.emplace_back(graph::PagedLoad{pool, table, lengths, gathered, {}});
  pointwise(PointwiseMode::identity, gathered, {}, y);
  EXPECT_THAT(run(y), ElementsAre(5, 7, 1, IsNan(), 6, 8, 2, IsNan()));
}

// A row without a visible score, and a normal row.
TEST_F(GraphTest, RowsThatSeeNothingHaveNoWeights) {
  const Uid x = matrix(2, 2, {-kInfinity, -kInfinity, 0, -kInfinity});
  const Uid max = matrix(2, 1), centred = matrix(2, 2), powers = matrix(2, 2), sum = matrix(2, 1);
  const Uid weights = matrix(2, 2);
  graph_.nodes.emplace_back(graph::Reduction{graph::ReduceOp::max, DType::f32, x, max, {}});
  pointwise(PointwiseMode::sub, x, max, centred);
  pointwise(PointwiseMode::exp, centred, {}, powers);
  graph_.nodes.emplace_back(graph::Reduction{graph::ReduceOp::add, DType::f32, powers, sum, {}});
  pointwise(PointwiseMode::div, powers, sum, weights);
  EXPECT_THAT(run(weights), ElementsAre(0, 0, 1, 0));
}

TEST_F(GraphTest, WhatItHasNotIsSaid) {
  const Uid x = matrix(1, 1, {1}), y = matrix(1, 1);
  pointwise(PointwiseMode::neg, x, {}, y);
  EXPECT_EQ(host::run(graph_, {}).error().code, ErrorCode::invalid_argument);
  std::vector<std::byte> short_one(2), whole(4);
  const std::map<Uid, Operand> operands = {{x, std::span(short_one)}, {y, std::span(whole)}};
  EXPECT_EQ(host::run(graph_, operands).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace attn::host
