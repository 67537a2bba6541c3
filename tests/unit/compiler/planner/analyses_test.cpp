// Each mask is analyzed once in a compilation, whoever asks.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "compiler/driver/driver.h"
#include "compiler/masks/mask_analysis.h"
#include "runtime/base/check.h"
#include "tests/support/contexts.h"

namespace attn::planner {
namespace {

// The mask, with the sizes of its attention, and a part of its analysis.
using Computed = std::pair<std::string, std::string>;

std::string text_of(const ir::Attention& attention) {
  std::string text;
  for (const ir::Dim dim : ir::kDims) text += std::to_string(attention.dims[dim]) + " ";
  for (const ir::ExprId mask : attention.masks) text += ir::to_source(attention, mask) + "; ";
  return text;
}

// How often each was computed by the front end and by the strategies of both directions: all that
// auto may try, or those up to the first that is lowered.
enum class Tried { all, first };
std::map<Computed, int> computed(const std::string& spec, Tried tried) {
  std::map<Computed, int> times;
  const target::AnalysisObserver observer = [&times](const target::AnalysisRun& run) {
    ++times[{text_of(run.of), std::string(run.part)}];
  };
  masks::MaskAnalyses analyses(&observer);
  const auto source = support::Source::read(ATTN_SOURCE_DIR "/specs/" + spec + ".attn");
  ATTN_CHECK(source.ok(), spec);
  diag::Sink sink(*source);
  const auto attention = driver::front_end(*source, {}, sink, &analyses);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  for (const bool backward : {false, true}) {
    target::Context context = attn::testing::in(backward);
    context.analyses = &analyses;
    Search search(driver::training_forward(*attention), kAnyLowering, context);
    while (true) {
      const auto next = search.next();
      ATTN_CHECK(next.ok(), "no strategy serves it");
      if (*next == nullptr || tried == Tried::first) break;
    }
  }
  return times;
}

int count(const std::map<Computed, int>& computed, std::string_view part) {
  int count = 0;
  for (const auto& [what, times] : computed) count += what.second == part ? times : 0;
  return count;
}

TEST(Analyses, NothingIsComputedTwice) {
  for (const char* spec : {"causal", "dilated_window", "sliding_window", "prefix_lm"}) {
    for (const auto& [what, times] : computed(spec, Tried::all)) {
      EXPECT_EQ(times, 1) << spec << ": " << what.second << " of " << what.first;
    }
  }
}

TEST(Analyses, TheFormOfACausalMaskServesBothDirections) {
  const std::map<Computed, int> causal = computed("causal", Tried::first);
  EXPECT_EQ(count(causal, "form"), 1);
  EXPECT_EQ(count(causal, "block_lists"), 1);
}

}  // namespace
}  // namespace attn::planner
