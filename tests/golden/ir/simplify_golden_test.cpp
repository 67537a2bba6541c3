// The simplified form of each NAME.ir in this folder: NAME.simplified.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "compiler/ir/attention.h"
#include "compiler/rewrite/simplify.h"
#include "tests/support/golden.h"

namespace attn::masks {
namespace {

constexpr char kFolder[] = "tests/golden/ir/";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / kFolder)) {
    if (entry.path().extension() == ".ir") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class SimplifyGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SimplifyGolden, BeforeAndAfter) {
  const std::string path = kFolder + GetParam();
  const std::string text = attn::testing::read_source_file(path + ".ir");
  const Result<ir::Attention> before = ir::parse(text);
  ASSERT_TRUE(before.ok()) << before.error().message;
  ASSERT_TRUE(ir::verify(*before).ok()) << ir::verify(*before).error().message;
  const ir::Attention after = rewrite::simplify(*before);
  ASSERT_TRUE(ir::verify(after).ok()) << ir::verify(after).error().message;
  attn::testing::expect_golden(path + ".simplified", ir::to_text(after));
  EXPECT_EQ(ir::to_text(rewrite::simplify(after)), ir::to_text(after));
}

INSTANTIATE_TEST_SUITE_P(Files, SimplifyGolden, ::testing::ValuesIn(case_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attn::masks
