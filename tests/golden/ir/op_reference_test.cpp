// The table in docs/ir.md must match ops.def.
#include <gtest/gtest.h>

#include "compiler/ir/attention.h"
#include "tests/support/golden.h"

namespace attn::ir {
namespace {

TEST(OpReference, DocumentationIsCurrent) {
  const std::string begin = "<!-- ops: begin (generated) -->\n";
  const std::string end = "<!-- ops: end -->\n";
  std::string page = attn::testing::read_source_file("docs/ir.md");
  const std::size_t from = page.find(begin);
  const std::size_t to = page.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  page.replace(from + begin.size(), to - from - begin.size(), op_reference());
  attn::testing::expect_golden("docs/ir.md", page);
}

}  // namespace
}  // namespace attn::ir
