#include "runtime/cudnn/known_wrong.h"

#include <gtest/gtest.h>

namespace attn::cudnn {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::Storage;

// Score-shaped values 1.. and the scalar 100.
class KnownWrongTest : public ::testing::Test {
 protected:
  KnownWrongTest() {
    for (graph::Uid uid = 1; uid < 20; ++uid) {
      graph_.tensors.push_back({uid, "", DType::f32, {1, 4, 1, 256}, {1024, 256, 256, 1}});
    }
    graph_.tensors.push_back(
        {100, "", DType::i32, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::host_scalar});
  }
  void set_rows(std::int64_t rows) {
    graph_.tensors[0].dims[2] = rows;
    graph_.nodes.insert(graph_.nodes.begin(), graph::Matmul{17, 18, 1, DType::f32, {}});
  }
  void add(PointwiseMode mode, graph::Uid x, std::optional<graph::Uid> b, graph::Uid y) {
    Pointwise node;
    node.mode = mode;
    node.x = x;
    node.b = b;
    node.y = y;
    graph_.nodes.emplace_back(node);
  }
  void add_indices() {
    add(PointwiseMode::gen_index, 1, {}, 2);
    add(PointwiseMode::gen_index, 1, {}, 3);
  }
  bool refused(std::int64_t engine) { return !known_wrong(graph_, engine).empty(); }

  BackendGraph graph_;
};

TEST_F(KnownWrongTest, BandsAreRight) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::add, 2, 100, 4);
  add(PointwiseMode::sub, 4, 100, 5);
  add(PointwiseMode::cmp_ge, 5, 3, 6);
  add(PointwiseMode::add, 3, 100, 7);
  add(PointwiseMode::cmp_gt, 7, 2, 8);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownWrongTest, IndicesInArithmeticAreNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_TRUE(refused(1));
  EXPECT_FALSE(refused(2));
}

TEST_F(KnownWrongTest, SeveralRowsAreRight) {
  set_rows(2);
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownWrongTest, IndicesAsSecondInputsAreNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::add, 1, 3, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownWrongTest, ComparingAnIndexWithAScalarIsNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::cmp_ge, 3, 100, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownWrongTest, AnIndexLessItselfIsRight) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::sub, 2, 2, 4);
  add(PointwiseMode::add, 4, 100, 5);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownWrongTest, LengthsAreRight) {
  set_rows(1);
  graph_.tensors.push_back({101, "", DType::i32, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::device});
  add_indices();
  add(PointwiseMode::cmp_lt, 3, 101, 4);
  add(PointwiseMode::add, 2, 101, 5);
  add(PointwiseMode::cmp_ge, 5, 3, 6);
  EXPECT_TRUE(refused(1)) << "that is some tensor";
  std::get<graph::Matmul>(graph_.nodes[0]).n = 101;
  EXPECT_FALSE(refused(1)) << "those are the sizes of the product";
}

TEST_F(KnownWrongTest, TheProductNeedNotBeFirst) {
  set_rows(1);
  graph_.nodes.insert(graph_.nodes.begin(), graph::PagedLoad{1, 2, 3, 4, {}});
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownWrongTest, ScoresAloneAreRight) {
  set_rows(1);
  add(PointwiseMode::tanh, 1, {}, 2);
  add(PointwiseMode::mul, 2, 100, 3);
  EXPECT_FALSE(refused(1));
}

}  // namespace
}  // namespace attn::cudnn
