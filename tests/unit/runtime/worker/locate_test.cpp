#include "runtime/worker/locate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/runtime/worker/graphs.h"

namespace attn::worker {
namespace {

using graph::BackendGraph;
using graph::PointwiseMode;
using testing::attention_graph;
using testing::Mask;

bool has(const BackendGraph& graph, PointwiseMode mode) {
  return std::ranges::any_of(graph.nodes, [mode](const graph::Node& node) {
    const auto* pointwise = std::get_if<graph::Pointwise>(&node);
    return pointwise != nullptr && pointwise->mode == mode;
  });
}

TEST(CutScoreChain, LeavesAValidAttentionWithoutTheMask) {
  const BackendGraph causal = attention_graph({}, Mask::causal);
  // matmul, scale | row, column, compare, select
  for (const int length : {2, 3, 4, 5}) {
    const auto cut = cut_score_chain(causal, length);
    ASSERT_TRUE(cut.has_value());
    EXPECT_TRUE(graph::validate(*cut).ok());
    EXPECT_EQ(graph::canonical_text(*cut), graph::canonical_text(attention_graph({}, Mask::none)));
  }
}

TEST(CutScoreChain, FullLengthChangesNothing) {
  const BackendGraph causal = attention_graph({}, Mask::causal);
  EXPECT_EQ(cut_score_chain(causal, 6), causal);
}

TEST(CutScoreChain, NothingLeftToReadFrom) {
  EXPECT_EQ(cut_score_chain(attention_graph({}, Mask::causal), 0), std::nullopt);
  EXPECT_EQ(cut_score_chain(BackendGraph{}, 0), std::nullopt);
}

TEST(LocateDeath, FindsTheNodeThatJoinsTheChain) {
  int calls = 0;
  const auto node = locate_death(attention_graph({}, Mask::causal), [&](const BackendGraph& graph) {
    ++calls;
    return has(graph, PointwiseMode::binary_select);
  });
  EXPECT_EQ(node, 5);
  EXPECT_LE(calls, 4);
}

TEST(LocateDeath, FindsTheScale) {
  const auto node = locate_death(attention_graph({}, Mask::causal), [](const BackendGraph& graph) {
    return has(graph, PointwiseMode::mul);
  });
  EXPECT_EQ(node, 1);
}

TEST(LocateDeath, KnowsWhenTheChainIsNotToBlame) {
  const auto always = [](const BackendGraph&) { return true; };
  EXPECT_EQ(locate_death(attention_graph({}, Mask::causal), always), std::nullopt);
  EXPECT_EQ(locate_death(BackendGraph{}, always), std::nullopt);
}

TEST(LocateDeath, SaysNothingOnceItCannotBeFoundOut) {
  for (const int known : {0, 1}) {
    int calls = 0;
    const auto dies = [&](const BackendGraph&) -> std::optional<bool> {
      if (calls++ < known) return false;
      return std::nullopt;
    };
    EXPECT_EQ(locate_death(attention_graph({}, Mask::causal), dies), std::nullopt);
    EXPECT_EQ(calls, known + 1) << "it does not ask again";
  }
}

}  // namespace
}  // namespace attn::worker
