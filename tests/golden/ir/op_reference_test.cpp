// The generated tables in the manuals.
#include <gtest/gtest.h>

#include "compiler/ir/attention.h"
#include "compiler/ir/real_function.h"
#include "tests/support/golden.h"

namespace attn::ir {
namespace {

// The table is between <!-- NAME: begin (generated) --> and <!-- NAME: end -->.
void expect_table(const std::string& path, const std::string& name, const std::string& table) {
  const std::string begin = "<!-- " + name + ": begin (generated) -->\n";
  std::string page = attn::testing::read_source_file(path);
  const std::size_t from = page.find(begin);
  const std::size_t to = page.find("<!-- " + name + ": end -->\n");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  page.replace(from + begin.size(), to - from - begin.size(), table);
  attn::testing::expect_golden(path, page);
}

TEST(OpReference, IsThatOfOpsDef) { expect_table("docs/ir.md", "ops", op_reference()); }

TEST(FunctionReference, IsThatOfRealFunctionsDef) {
  expect_table("docs/language.md", "functions", function_reference());
}

}  // namespace
}  // namespace attn::ir
