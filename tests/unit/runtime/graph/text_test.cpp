#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::graph {
namespace {

TEST(ToText, Sample) {
  attn::testing::expect_golden("tests/unit/runtime/graph/golden/sample.txt",
                               to_text(testing::sample_graph()));
}

TEST(CanonicalText, Sample) {
  attn::testing::expect_golden("tests/unit/runtime/graph/golden/sample_canonical.txt",
                               testing::in_lines(canonical_text(testing::sample_graph())));
}

TEST(ToText, AttentionAsOneNode) {
  attn::testing::expect_golden("tests/unit/runtime/graph/golden/unified.txt",
                               to_text(testing::unified_graph()));
  attn::testing::expect_golden("tests/unit/runtime/graph/golden/unified_canonical.txt",
                               testing::in_lines(canonical_text(testing::unified_graph())));
}

TEST(ToText, AGraphThatIsWrongCanStillBeLookedAt) {
  BackendGraph graph;
  graph.tensors.push_back({1, "a\nb", DType::f32, {2, 2}, {1}, Storage::device, 16});
  graph.nodes.emplace_back(Matmul{1, 2, 3, DType::f32, {}});
  EXPECT_EQ(to_text(graph),
            "%1 f32[2,2] strides [1] device align 16 (a\\nb)\n"
            "%3 = matmul.f32 %1, %2\n");
}

}  // namespace
}  // namespace attn::graph
