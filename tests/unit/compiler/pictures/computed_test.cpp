#include "compiler/pictures/computed.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/pictures/picture.h"
#include "compiler/planner/search.h"
#include "compiler/reference/lifelike.h"
#include "tests/support/contexts.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/pictures/spec_text.h"

namespace attn::pictures::computed_tests {
namespace {

using engines::Coverage;
using masks::Block;

// Expects that each visible score is computed by one kernel, and with a mask where a block has
// others.
void expect_all_computed(const Panel& panel, std::size_t kernels) {
  ASSERT_TRUE(panel.computed);
  double computed = 0;
  for (std::size_t i = 0; i < panel.cells.map.blocks.size(); ++i) {
    const ByKernel& by = panel.computed->cells[i];
    const bool is_visible = panel.cells.map.blocks[i] == Block::full;
    ASSERT_TRUE(!is_visible || by.kernel < kernels) << i;
    if (by.kernel == ByKernel::kNone) continue;
    ASSERT_NE(by.kernel, ByKernel::kSeveral) << i;
    ASSERT_TRUE(is_visible || by.masked) << i;
    ++computed;
  }
  // Several parts may compute what one of them shows.
  EXPECT_GE(panel.computed->scores, computed);
  EXPECT_TRUE(kernels > 1 || panel.computed->scores == computed);
}

// The kernels of each strategy that can lower the attention; returns the names of these.
std::set<std::string> expect_all_computed(const ir::Attention& attention,
                                          const reference::Bindings& values = {}) {
  std::set<std::string> names;
  const target::Context context = attn::testing::in(false);
  for (const planner::Strategy& strategy : planner::strategies(planner::kAnyOrSlow)) {
    planner::Search search(attention, strategy.name, context);
    const auto candidate = search.next();
    if (!candidate.ok()) continue;
    const std::vector<Coverage>& kernels = (*candidate)->lowered->kernels;
    SCOPED_TRACE(std::string(strategy.name));
    const Picture drawn = picture_of(attention, values, {.kernels = kernels}).value();
    EXPECT_FALSE(kernels.empty());
    for (const Panel& panel : drawn.panels) expect_all_computed(panel, kernels.size());
    names.emplace(strategy.name);
  }
  return names;
}

TEST(Computed, IsWhatIsVisibleOfRandomMasks) {
  int in_parts = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::string text = attn::testing::random_spec(seed, 150);
    SCOPED_TRACE(text);
    in_parts += static_cast<int>(expect_all_computed(attention_of(text)).count("parts"));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(in_parts, 10);
}

struct Case {
  const char* clauses;
  std::set<std::string> strategies;  // that must be among those
};

constexpr const char* kDims = "attention t {\n  dims B = 2, Hq = 4, Hkv = 2, Sq = 256, Skv = Sq, ";

TEST(Computed, IsWhatIsVisibleOfCapturedTensors) {
  const Case cases[] = {
      {"tensor doc: i32[B, Sq] monotone runs(9);\n"
       "  mask doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx;",
       {"composite", "segments", "native", "block_sparse"}},
      {"tensor length: i32[B];\n  mask kv_idx < length[b];", {"composite", "seqlens", "native"}},
      {"tensor length: i32[B];\n  mask kv_idx < length[b] && q_idx >= kv_idx;", {"seqlens"}},
      {"tensor seen: bool[Hq, 4, 4];\n  mask seen[h, q_idx // 64, kv_idx // 64];",
       {"block_sparse", "native"}},
      {"lengths q = 200 - 50 * i0, kv = 100 + 50 * i0;\n  mask q_idx >= kv_idx;", {"composite"}},
      {"lengths q = 200 - 50 * i0, kv = 100 + 50 * i0;\n  align bottom_right;\n"
       "  mask q_idx >= kv_idx && q_idx - kv_idx < 40;",
       {"composite"}},
      {"mask abs(q_idx // 16 - kv_idx // 16) < 3 && abs(q_idx % 16 - kv_idx % 16) < 4;",
       {"native", "block_sparse"}},
      {"mask (q_idx - kv_idx) % 2 == 0 && abs(q_idx - kv_idx) < 64;", {"native", "parts"}}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.clauses);
    const ir::Attention attention =
        attention_of(kDims + std::string("D = 64;\n  ") + each.clauses + "\n  outputs o;\n}\n");
    reference::Bindings values;
    for (const ir::CapturedTensor& tensor : attention.tensors) {
      std::vector<std::int64_t> dims;
      for (const ir::ExprId extent : tensor.extents) {
        dims.push_back(ir::fold_integer(attention.dag, extent, attention.dims).value());
      }
      values.tensors[tensor.name] = {tensor.dtype, dims,
                                     reference::lifelike(attention, tensor, dims, 1)};
    }
    const std::set<std::string> names = expect_all_computed(attention, values);
    if (HasFatalFailure()) return;
    for (const std::string& name : each.strategies) EXPECT_TRUE(names.contains(name)) << name;
  }
}

// Blocks are computed if one of their scores is.
TEST(Computed, OfBlocksIsWhatScoresAre) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const ir::Attention attention = attention_of(attn::testing::random_spec(seed, 150));
    planner::Search search(attention, "auto", attn::testing::in(false));
    const std::vector<Coverage> kernels = search.next().value()->lowered->kernels;
    const auto drawn = [&](std::int64_t cell) {
      return picture_of(attention, {}, {.cell = {{cell, cell}}, .kernels = kernels}).value();
    };
    const Picture scores = drawn(1), blocks = drawn(8);
    const masks::BlockMap& map = scores.panels[0].cells.map;
    const masks::BlockMap& coarse = blocks.panels[0].cells.map;
    std::vector<bool> computed(coarse.blocks.size());
    for (std::int64_t row = 0; row < map.height; ++row) {
      for (std::int64_t column = 0; column < map.width; ++column) {
        const auto at = static_cast<std::size_t>(row * map.width + column);
        if (scores.panels[0].computed->cells[at].kernel == ByKernel::kNone) continue;
        computed[static_cast<std::size_t>(row / 8 * coarse.width + column / 8)] = true;
      }
    }
    for (std::size_t i = 0; i < computed.size(); ++i) {
      ASSERT_EQ(blocks.panels[0].computed->cells[i].kernel != ByKernel::kNone, computed[i]) << seed;
    }
    EXPECT_EQ(blocks.panels[0].computed->scores, scores.panels[0].computed->scores);
  }
}

}  // namespace
}  // namespace attn::pictures::computed_tests
