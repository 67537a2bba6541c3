#include "compiler/masks/mask_analysis.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "compiler/engines/shared/block_lists.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::masks {
namespace {

class MaskAnalysisTest : public ::testing::Test {
 protected:
  target::Context context() {
    target::Context context;
    context.analyses = &analyses_;
    return context;
  }

  std::vector<std::string> computed_;
  target::AnalysisObserver observer_ = [this](const target::AnalysisRun& run) {
    computed_.emplace_back(run.part);
  };
  MaskAnalyses analyses_{&observer_};
};

TEST_F(MaskAnalysisTest, ComputesAPartAtItsFirstCallAndKeepsIt) {
  const ir::Attention blocks = testing::of_clauses(256, 256, "mask q_idx // 64 == kv_idx // 64;");
  const Analyzed mask = analyzed(blocks, context());
  EXPECT_TRUE(computed_.empty());
  Effort effort;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(mask->form().residual.size(), 1U);
    EXPECT_EQ(mask->cover(effort).left, 63);
    EXPECT_EQ(mask->bounds(effort)->rows, (Range{0, 255}));
    EXPECT_EQ(mask->blocks()->count(Block::empty), 2);
    EXPECT_TRUE(engines::block_lists(*mask).has_value());
    EXPECT_FALSE(mask->hides_all(effort));
  }
  EXPECT_EQ(computed_, (std::vector<std::string>{"form", "cover", "bounds", "blocks", "block_lists",
                                                 "hides_all"}));
}

bool share(const Analyzed& x, const Analyzed& y) { return &x->form() == &y->form(); }

TEST_F(MaskAnalysisTest, IsSharedByAttentionsWithTheSameMasks) {
  const ir::Attention causal = testing::of_clauses(64, 64, "mask q_idx >= kv_idx;");
  const Analyzed mask = analyzed(causal, context());
  ir::Attention other = causal;
  other.wants_max = true;
  other.score = other.dag.add(ir::Op::neg_, {other.score});
  EXPECT_TRUE(share(analyzed(other, context()), mask));
  other.dims.set(ir::Dim::Sq, 32);
  EXPECT_FALSE(share(analyzed(other, context()), mask));
  other = causal;
  other.masks.clear();
  EXPECT_FALSE(share(analyzed(other, context()), mask));
  EXPECT_FALSE(share(analyzed(causal, {}), mask));
}

// Another's deadline, which may be over, says nothing of this one's work.
TEST_F(MaskAnalysisTest, EachUserHasItsOwnDeadline) {
  target::Deadline::Clock::time_point now{};
  const auto within = [&now](int seconds) {
    return std::make_shared<target::Deadline>(std::chrono::seconds(seconds),
                                              [&now] { return now; });
  };
  target::Context early = context(), late = context();
  early.deadline = within(1), late.deadline = within(10);
  const ir::Attention blocks = testing::of_clauses(256, 256, "mask q_idx // 64 == kv_idx // 64;");
  const Analyzed mask = analyzed(blocks, late), other = analyzed(blocks, early);
  now += std::chrono::seconds(2);
  EXPECT_EQ(other->blocks()->exactness, Exactness::stopped);
  EXPECT_EQ(other->blocks()->count(Block::empty), 0);
  Effort stopped(early.deadline.get()), effort(late.deadline.get());
  EXPECT_EQ(other->cover(stopped), Band{});
  EXPECT_TRUE(stopped.is_spent());
  EXPECT_EQ(mask->blocks()->exactness, Exactness::exact);
  EXPECT_EQ(mask->blocks()->count(Block::empty), 2);
  EXPECT_EQ(mask->cover(effort).left, 63);
  EXPECT_EQ(other->blocks()->count(Block::empty), 2) << "found meanwhile";
  EXPECT_EQ(computed_, (std::vector<std::string>{"blocks", "cover", "blocks", "cover"}));
}

// What rests on a form that was found too late is found again, too.
TEST_F(MaskAnalysisTest, WhatIsFoundTooLateIsNotKept) {
  target::Deadline::Clock::time_point now{};
  target::Context late = context();
  late.deadline =
      std::make_shared<target::Deadline>(std::chrono::seconds(1), [&now] { return now; });
  const ir::Attention nothing =
      testing::of_clauses(64, 64, "mask q_idx >= kv_idx && q_idx < kv_idx - 8;");
  const Analyzed over = analyzed(nothing, late), mask = analyzed(nothing, context());
  now += std::chrono::seconds(2);
  Effort first, second;
  EXPECT_TRUE(over->hides_all(first));
  EXPECT_TRUE(mask->hides_all(second));
  EXPECT_TRUE(mask->hides_all(second));
  EXPECT_EQ(computed_, (std::vector<std::string>{"form", "hides_all", "form", "hides_all"}));
}

TEST_F(MaskAnalysisTest, DependsOnWhatIsDeclaredOfTheTensorsThatMasksRead) {
  const auto doc = [](const std::string& more) {
    return testing::of_clauses(
        64, 64, "tensor doc: i32[Skv] " + more + "; mask doc[q_idx] == doc[kv_idx];");
  };
  EXPECT_FALSE(share(analyzed(doc("monotone"), context()), analyzed(doc(""), context())));
}

TEST_F(MaskAnalysisTest, WhatTheEffortCutsShortIsNotKept) {
  const Analyzed mask =
      analyzed(testing::of_clauses(256, 256, "mask q_idx // 64 == kv_idx // 64;"), context());
  Effort none(std::int64_t{0}), enough;
  EXPECT_EQ(mask->cover(none), Band{});
  EXPECT_EQ(mask->cover(enough).right, 63);
}

TEST_F(MaskAnalysisTest, KeptPartsSpendTheEffortThatTheyTook) {
  const Analyzed mask =
      analyzed(testing::of_clauses(256, 256, "mask q_idx // 64 == kv_idx // 64;"), context());
  Effort first, second;
  EXPECT_EQ(mask->cover(first), mask->cover(second));
  EXPECT_LT(first.left(), Effort::kMost);
  EXPECT_EQ(first.left(), second.left());
  Effort too_little(Effort::kMost - first.left() - 1);
  mask->cover(too_little);
  EXPECT_TRUE(too_little.is_spent());
}

TEST_F(MaskAnalysisTest, TellsWhatItDependsOnAndWhatItKnows) {
  const Analyzed exact =
      analyzed(testing::of_clauses(256, 256, "mask kv_idx < 100 + h;"), context());
  EXPECT_EQ(exact->axes(), (Axes{.head = true, .column = true}));
  EXPECT_EQ(exact->blocks()->exactness, Exactness::exact);
  const Analyzed bound = analyzed(
      testing::of_clauses(256, 256, "tensor n: i32[B]; mask kv_idx < n[b]; mask kv_idx < 128;"),
      context());
  EXPECT_EQ(bound->blocks()->exactness, Exactness::bound);
  EXPECT_EQ(bound->blocks()->count(Block::empty), 2);
  EXPECT_FALSE(analyzed(testing::of_clauses(256, 256, ""), context())->blocks().has_value());
}

}  // namespace
}  // namespace attn::masks
