// Graphs with attention as one node, for specs with every layout, band, output, sink and dropout.
#include <gtest/gtest.h>

#include "compiler/planner/search.h"
#include "tests/golden/lowering/specs.h"
#include "tests/support/golden.h"
#include "tests/unit/runtime/plan/program_text.h"

namespace attn::testing {
namespace {

constexpr const char* kSpecs[] = {
    "tests/gpu/surface/dropout_causal",
    "tests/gpu/surface/dropout_keep",
    "tests/gpu/surface/head_dim_100",
    "tests/gpu/surface/outputs_max",
    "tests/gpu/surface/padding_bottom_right_window",
    "tests/gpu/surface/padding_softcap",
    "tests/gpu/surface/paged_two_tables",
    "tests/gpu/surface/sink_padding",
    "tests/gpu/surface/thd_window",
    "specs/causal_bottom_right",
    "specs/document_causal",
    "specs/gemma2_local",
    "specs/noop",
    "specs/temperature",
};

class UnifiedLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(UnifiedLowering, Program) {
  const std::filesystem::path path = GetParam();
  const auto program =
      try_lower(std::filesystem::path(ATTN_SOURCE_DIR) / (path.string() + ".attn"), "unified");
  expect_golden("tests/golden/lowering/unified/" + path.stem().string() + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(Specs, UnifiedLowering, ::testing::ValuesIn(kSpecs), [](const auto& spec) {
  return std::filesystem::path(spec.param).stem().string();
});

}  // namespace
}  // namespace attn::testing
