#include "runtime/cudnn/known_bad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace attn::cudnn {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::Storage;

// Tensors 1.. of score shape, and the scalar 100.
class KnownBadTest : public ::testing::Test {
 protected:
  KnownBadTest() {
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
  bool refused(std::int64_t engine) {
    return find_known_bad({91900, 90, features_of(graph_)}, engine) != nullptr;
  }

  BackendGraph graph_;
};

TEST_F(KnownBadTest, BandsAreRight) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::add, 2, 100, 4);
  add(PointwiseMode::sub, 4, 100, 5);
  add(PointwiseMode::cmp_ge, 5, 3, 6);
  add(PointwiseMode::add, 3, 100, 7);
  add(PointwiseMode::cmp_gt, 7, 2, 8);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownBadTest, IndicesInArithmeticAreNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_TRUE(refused(1));
  EXPECT_FALSE(refused(2));
}

TEST_F(KnownBadTest, SeveralRowsAreRight) {
  set_rows(2);
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownBadTest, IndicesAsSecondInputsAreNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::add, 1, 3, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownBadTest, ComparingAnIndexWithAScalarIsNot) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::cmp_ge, 3, 100, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownBadTest, AnIndexLessItselfIsRight) {
  set_rows(1);
  add_indices();
  add(PointwiseMode::sub, 2, 2, 4);
  add(PointwiseMode::add, 4, 100, 5);
  EXPECT_FALSE(refused(1));
}

TEST_F(KnownBadTest, LengthsAreRight) {
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

TEST_F(KnownBadTest, TheProductNeedNotBeFirst) {
  set_rows(1);
  graph_.nodes.insert(graph_.nodes.begin(), graph::PagedLoad{1, 2, 3, 4, {}});
  add_indices();
  add(PointwiseMode::mod, 3, 100, 4);
  EXPECT_TRUE(refused(1));
}

TEST_F(KnownBadTest, ScoresAloneAreRight) {
  set_rows(1);
  add(PointwiseMode::tanh, 1, {}, 2);
  add(PointwiseMode::mul, 2, 100, 3);
  EXPECT_FALSE(refused(1));
}

Features only(std::initializer_list<Feature> list) {
  Features features;
  for (const Feature feature : list) features.set(static_cast<std::size_t>(feature));
  return features;
}

std::string_view found(std::int64_t version, std::int64_t sm, Features features,
                       std::int64_t engine = kAnyEngine) {
  const KnownBad* row = find_known_bad({version, sm, features}, engine);
  return row == nullptr ? "" : row->name;
}

// Every row holds at the ends of its ranges, not beyond them, and only for graphs with its
// features.
TEST(KnownBadRows, HoldWhereTheySay) {
  for (const KnownBad& row : known_bad()) {
    SCOPED_TRACE(row.name);
    const auto holds = [&row](std::int64_t version, std::int64_t sm, Features features) {
      return found(version, sm, features, row.engine) == row.name;
    };
    EXPECT_TRUE(holds(row.first, row.first_sm, row.features));
    EXPECT_TRUE(holds(row.last, row.last_sm, row.features));
    EXPECT_FALSE(holds(row.first - 1, row.first_sm, row.features));
    EXPECT_FALSE(holds(row.last + 1, row.first_sm, row.features));
    EXPECT_FALSE(holds(row.first, row.first_sm - 1, row.features));
    EXPECT_FALSE(holds(row.first, row.last_sm + 1, row.features));
    for (std::size_t i = 0; i < row.features.size(); ++i) {
      Features fewer = row.features;
      if (!fewer.test(i)) continue;
      EXPECT_FALSE(holds(row.first, row.first_sm, fewer.reset(i)));
    }
    EXPECT_FALSE(row.what.empty() || row.help.empty() || row.source.empty());
  }
}

TEST(KnownBadRows, ASingleRowOnBlackwell) {
  const Features row = only({Feature::one_row});
  for (const std::int64_t version : {91900, 92100, 92400, 92500}) {
    EXPECT_NE(found(version, 100, row), "") << version;
    EXPECT_EQ(found(version, 90, row), "") << version;
    EXPECT_EQ(found(version, 120, row), "") << version;
    EXPECT_EQ(found(version, 100, {}), "") << version;
  }
  for (const std::int64_t version : {91801, 92401, 92501, 92800}) {
    EXPECT_EQ(found(version, 100, row), "") << version;
  }
}

TEST(KnownBadRows, OldVersions) {
  EXPECT_EQ(found(91001, 90, {}), "forward_of_9_10");
  EXPECT_EQ(found(91002, 90, {}), "");
  const Features window = only({Feature::left_bound_alone, Feature::over_1024_columns});
  EXPECT_EQ(found(91400, 80, window), "window_of_9_14");
  EXPECT_EQ(found(91401, 80, window), "");
  EXPECT_EQ(found(91300, 80, only({Feature::random_dropout})), "dropout_of_9_11");
}

TEST(KnownBadRows, AreInTheManual) {
  std::ifstream file(ATTN_SOURCE_DIR "/docs/cudnn.md");
  std::stringstream text;
  text << file.rdbuf();
  std::set<std::string_view> names;
  for (const KnownBad& row : known_bad()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands there twice";
    EXPECT_THAT(text.str(), ::testing::HasSubstr("| `" + std::string(row.name) + "` |"));
  }
}

// Both graphs of the same attention have the same features.
class FeaturesTest : public KnownBadTest {
 protected:
  FeaturesTest() {
    graph_.tensors.push_back({101, "", DType::i32, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::device});
  }
  graph::SdpaForward& add_sdpa() {
    graph::SdpaForward node;
    node.q = 1;
    node.k = 2;
    node.v = 3;
    node.o = 4;
    graph_.nodes.emplace_back(node);
    return std::get<graph::SdpaForward>(graph_.nodes.back());
  }
  bool has(Feature feature) const {
    return features_of(graph_).test(static_cast<std::size_t>(feature));
  }
};

TEST_F(FeaturesTest, OfAttentionAsOneNode) {
  graph::SdpaForward& node = add_sdpa();
  EXPECT_EQ(features_of(graph_), only({Feature::one_row}));
  node.sink = 5;
  node.stats = 6;
  node.dropout = 0.1;
  EXPECT_EQ(features_of(graph_),
            only({Feature::one_row, Feature::sink, Feature::stats, Feature::random_dropout}));
  node.table_k = node.table_v = 7;
  graph_.tensors[6].dims = {1, 1, 16, 1};
  EXPECT_TRUE(has(Feature::pages));
  EXPECT_FALSE(has(Feature::pages_of_two_sizes));
  graph_.tensors[1].dims[2] = 64;
  EXPECT_TRUE(has(Feature::pages_of_two_sizes));
  EXPECT_FALSE(has(Feature::over_1024_columns)) << "16 pages of 64";
  graph_.tensors[1].dims[2] = 128;
  EXPECT_TRUE(has(Feature::over_1024_columns));
}

TEST_F(FeaturesTest, EightBitsAndDeepHeads) {
  add_sdpa();
  EXPECT_FALSE(has(Feature::eight_bits) || has(Feature::deep_heads_in_8_bits));
  graph_.tensors[0].dtype = DType::e5m2;
  EXPECT_TRUE(has(Feature::eight_bits));
  const auto deep = [&](std::int64_t of_k, std::int64_t of_v) {
    graph_.tensors[1].dims[3] = of_k;
    graph_.tensors[2].dims[3] = of_v;
    return has(Feature::deep_heads_in_8_bits);
  };
  EXPECT_FALSE(deep(128, 128) || deep(192, 128));
  EXPECT_TRUE(deep(192, 192) && deep(64, 144));
}

TEST_F(FeaturesTest, PackedSequencesHaveRaggedTensors) {
  add_sdpa();
  EXPECT_FALSE(has(Feature::packed_sequences));
  graph_.tensors[0].ragged = 1;
  EXPECT_TRUE(has(Feature::packed_sequences));
}

TEST(KnownBad, PackedSequencesOfEightBitsOnHopper) {
  const auto name_of = [](std::int64_t sm, std::initializer_list<Feature> features) {
    const KnownBad* row = find_known_bad({91900, sm, features_of(features)}, kAnyEngine);
    return row == nullptr ? std::string() : std::string(row->name);
  };
  EXPECT_EQ(name_of(90, {Feature::eight_bits, Feature::packed_sequences}), "fp8_packed_sequences");
  EXPECT_EQ(name_of(100, {Feature::eight_bits, Feature::packed_sequences}), "");
  EXPECT_EQ(name_of(90, {Feature::packed_sequences}), "");
  EXPECT_EQ(name_of(90, {Feature::eight_bits}), "");
}

TEST_F(FeaturesTest, ScalesOfBlocksAndTransposedValues) {
  set_rows(2);
  EXPECT_FALSE(has(Feature::block_scales) || has(Feature::transposed_values));
  graph_.nodes.emplace_back(graph::BlockDequantize{4, 5, 6, 32, {}});
  EXPECT_TRUE(has(Feature::block_scales) && !has(Feature::transposed_values));
  graph_.nodes.emplace_back(graph::Reshape{6, 7, {}});
  EXPECT_TRUE(has(Feature::transposed_values));
}

// As in older plans with masks such as `q_idx < 500 && kv_idx >= 300`.
class LikePaddingTest : public FeaturesTest {
 protected:
  LikePaddingTest() {
    set_rows(2);
    add_indices();
    at(1).axis = 2, at(2).axis = 3;
    add(PointwiseMode::cmp_lt, 2, 100, 4);
    add(PointwiseMode::cmp_ge, 3, 100, 5);
    add(PointwiseMode::logical_and, 4, 5, 6);
    add(PointwiseMode::binary_select, 1, 100, 7);
    at(6).t = 6;
  }
  Pointwise& at(std::size_t node) { return std::get<Pointwise>(graph_.nodes[node]); }
  bool holds() const { return has(Feature::like_padding); }
};

TEST_F(LikePaddingTest, ARowAndAColumnCompared) {
  EXPECT_TRUE(holds());
  std::swap(at(5).x, *at(5).b);
  at(5).mode = PointwiseMode::logical_or;
  at(4).mode = PointwiseMode::cmp_ne;
  EXPECT_TRUE(holds());
  graph_.nodes.emplace_back(graph::Reshape{7, 8, {}});
  EXPECT_TRUE(holds()) << "in a backward, too";
  std::get<graph::Matmul>(graph_.nodes[0]).n = 101;
  EXPECT_FALSE(holds()) << "cuDNN crashes, so no plan has it";
}

TEST_F(LikePaddingTest, RowsComparedInAnotherWayAreRight) {
  at(3).mode = PointwiseMode::cmp_le;
  EXPECT_FALSE(holds());
  at(3).mode = PointwiseMode::cmp_lt;
  at(3).x = 7;
  EXPECT_FALSE(holds()) << "of something else";
}

TEST_F(LikePaddingTest, EitherAloneIsRight) {
  at(6).t = 4;
  EXPECT_FALSE(holds());
  at(6).t = 5;
  EXPECT_FALSE(holds());
}

TEST_F(LikePaddingTest, RowsComparedWithColumnsAreNot) {
  at(6).t = 4;
  at(3).b = 3;
  EXPECT_TRUE(holds());
  at(4).mode = PointwiseMode::mul;
  at(3).b = 5;
  EXPECT_TRUE(holds()) << "with what is computed of them";
}

TEST_F(LikePaddingTest, NorAreColumnsBelowTheRow) {
  at(6).t = 5;
  at(4).b = 2;
  at(4).mode = PointwiseMode::cmp_lt;
  EXPECT_TRUE(holds());
  at(4).mode = PointwiseMode::cmp_le;
  EXPECT_FALSE(holds());
}

// Compares `column >= row`.
TEST_F(LikePaddingTest, OnlyOneOrderIsCausal) {
  const auto like_causal = [this] { return has(Feature::like_causal); };
  at(6).t = 5;
  EXPECT_FALSE(like_causal()) << "of a constant";
  at(4).b = 2;
  EXPECT_TRUE(like_causal());
  at(4).mode = PointwiseMode::cmp_gt;
  EXPECT_TRUE(like_causal());
  std::swap(at(4).x, *at(4).b);
  EXPECT_TRUE(like_causal()) << "row > column";
  at(4).mode = PointwiseMode::cmp_ge;
  EXPECT_FALSE(like_causal()) << "row >= column";
  at(4).mode = PointwiseMode::cmp_gt;
  at(6).b = 9;
  EXPECT_FALSE(like_causal()) << "of two tensors";
}

// Compares a row, or a column, that scalars move with the other index as it is: cuDNN looks at
// neither the order nor the type of the scalars.
class LikeCausalTest : public LikePaddingTest {
 protected:
  static constexpr graph::Uid kRow = 2, kColumn = 3;

  // Whether `moved index > other index`, or what is made of it, is taken for something else.
  bool mistaken(graph::Uid index, std::string_view moves, PointwiseMode mode,
                bool moved_first = true, DType compute = DType::boolean) {
    graph_.nodes.resize(3);
    graph::Uid moved = index, next = 8;
    for (const char move : moves) {
      add(move == '+' ? PointwiseMode::add : PointwiseMode::sub, moved, 100, next);
      moved = next++;
    }
    const graph::Uid other = kRow + kColumn - index;
    add(mode, moved_first ? moved : other, moved_first ? other : moved, 6);
    std::get<Pointwise>(graph_.nodes.back()).compute = compute;
    add(PointwiseMode::binary_select, 1, 100, 7);
    std::get<Pointwise>(graph_.nodes.back()).t = 6;
    return has(Feature::like_causal);
  }
};

TEST_F(LikeCausalTest, WhatIsMovedComesFirst) {
  for (const PointwiseMode mode : {PointwiseMode::cmp_gt, PointwiseMode::cmp_ge}) {
    for (const graph::Uid index : {kRow, kColumn}) {
      for (const char* moves : {"+", "+-+"}) {
        EXPECT_FALSE(mistaken(index, moves, mode)) << moves;
        EXPECT_TRUE(mistaken(index, moves, mode, false)) << moves;
      }
    }
    EXPECT_TRUE(mistaken(kRow, "+-", mode, false));
  }
  EXPECT_FALSE(mistaken(kRow, "+-", PointwiseMode::cmp_ge));
  EXPECT_TRUE(mistaken(kRow, "+-", PointwiseMode::cmp_gt));
}

TEST_F(LikeCausalTest, RealsThatMoveAreMistaken) {
  for (const PointwiseMode mode : {PointwiseMode::cmp_gt, PointwiseMode::cmp_ge}) {
    EXPECT_TRUE(mistaken(kRow, "+", mode, true, DType::f32));
    EXPECT_TRUE(mistaken(kColumn, "+", mode, true, DType::f32));
  }
  EXPECT_FALSE(mistaken(kRow, "", PointwiseMode::cmp_ge, true, DType::f32));
}

TEST_F(LikeCausalTest, OtherMovesAreNotTakenForABound) {
  for (const bool moved_first : {false, true}) {
    for (const PointwiseMode mode : {PointwiseMode::cmp_lt, PointwiseMode::cmp_le}) {
      EXPECT_FALSE(mistaken(kRow, "+", mode, moved_first));
    }
    for (const PointwiseMode mode : {PointwiseMode::cmp_gt, PointwiseMode::cmp_ge}) {
      for (const char* moves : {"-", "++", "-+", "+--", "+-+-"}) {
        EXPECT_FALSE(mistaken(kRow, moves, mode, moved_first)) << moves;
      }
      EXPECT_FALSE(mistaken(kColumn, "+-", mode, moved_first));
    }
  }
}

TEST_F(LikeCausalTest, TwoThatAreMovedAreCompared) {
  EXPECT_TRUE(mistaken(kColumn, "+", PointwiseMode::cmp_gt, false));
  at(4).x = 9;
  graph_.nodes.insert(graph_.nodes.begin() + 3, graph_.nodes[3]);
  at(3).x = kRow;
  at(3).y = 9;
  EXPECT_FALSE(has(Feature::like_causal));
}

TEST_F(LikePaddingTest, ThreeComparisonsAreRight) {
  add(PointwiseMode::logical_and, 6, 5, 8);
  at(6).t = 8;
  EXPECT_FALSE(holds());
}

TEST_F(LikePaddingTest, OtherSelectsAreRight) {
  at(6).b = 9;
  EXPECT_FALSE(holds()) << "instead of a constant";
  at(6).b = 100;
  at(6).x = 9;
  EXPECT_FALSE(holds()) << "of something else than the scores";
}

TEST_F(FeaturesTest, AProductAloneHasNone) {
  set_rows(1);
  EXPECT_EQ(features_of(graph_), Features());
  add_indices();
  EXPECT_EQ(features_of(graph_), only({Feature::one_row}));
}

TEST_F(FeaturesTest, BandsOfOneNode) {
  graph::BandMask mask;
  mask.side = graph::BandSide::left;
  mask.x = 1;
  mask.y = 2;
  graph_.nodes.emplace_back(mask);
  add_sdpa();
  EXPECT_TRUE(has(Feature::left_bound_alone));
  mask.side = graph::BandSide::right;
  graph_.nodes.insert(graph_.nodes.begin(), mask);
  EXPECT_FALSE(has(Feature::left_bound_alone));
}

TEST_F(FeaturesTest, BandsOfManyNodes) {
  set_rows(2);
  add_indices();
  add(PointwiseMode::add, 3, 100, 7);
  add(PointwiseMode::cmp_gt, 7, 2, 8);
  EXPECT_TRUE(has(Feature::left_bound_alone));
  add(PointwiseMode::cmp_ge, 2, 3, 9);
  EXPECT_FALSE(has(Feature::left_bound_alone));
}

TEST_F(FeaturesTest, PagesSinksAndStatisticsOfManyNodes) {
  set_rows(2);
  EXPECT_EQ(features_of(graph_), Features());
  graph_.nodes.emplace_back(graph::PagedLoad{1, 101, 101, 5, {}});
  EXPECT_TRUE(has(Feature::pages));
  graph_.nodes.emplace_back(graph::PagedLoad{6, 101, 101, 7, {}});
  EXPECT_TRUE(has(Feature::pages_of_two_sizes)) << "2 rows and 1";
  graph_.tensors[9].dims[3] = 1;  // of 10
  add(PointwiseMode::max, 9, 100, 10);
  EXPECT_TRUE(has(Feature::sink));
  EXPECT_FALSE(has(Feature::stats));
  graph_.tensors[9].storage = Storage::device;
  EXPECT_TRUE(has(Feature::stats));
  graph_.nodes.emplace_back(graph::Rng{0.9, 101, 101, 11, {}});
  EXPECT_TRUE(has(Feature::random_dropout));
}

}  // namespace
}  // namespace attn::cudnn
