// The tensors that hoist derives from each NAME.attn in this folder, and the rest: NAME.expected.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "compiler/driver/driver.h"
#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/rewrite/hoist.h"
#include "tests/support/golden.h"

namespace attn::masks::hoist_golden_tests {
namespace {

constexpr char kFolder[] = "tests/golden/hoist/";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / kFolder)) {
    if (entry.path().extension() == ".attn") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

rewrite::HoistOptions options() {
  rewrite::HoistOptions options;
  options.readable = [](const ir::Attention& attention, ir::ExprId load) {
    return engines::captured_view(attention, load).status();
  };
  return options;
}

std::string derived_text(const rewrite::Hoisted& hoisted) {
  std::string text;
  for (const rewrite::DerivedTensor& tensor : hoisted.derived) {
    text += fmt::format("{}: {}[{}] {}= {}\n", tensor.name, to_string(tensor.dtype),
                        fmt::join(tensor.dims, ","), tensor.once ? "once " : "",
                        ir::to_source(hoisted.attention, tensor.expression));
  }
  return text.empty() ? "nothing is derived\n" : text;
}

class HoistGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(HoistGolden, DerivedAndLeft) {
  const std::string path = kFolder + GetParam();
  const support::Source source(GetParam(), attn::testing::read_source_file(path + ".attn"));
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ASSERT_TRUE(attention.has_value()) << diag::to_text(sink);
  const Result<rewrite::Hoisted> hoisted = rewrite::hoist(*attention, options(), {});
  ASSERT_TRUE(hoisted.ok()) << hoisted.error().to_text();
  ASSERT_TRUE(ir::verify(hoisted->attention).ok());
  attn::testing::expect_golden(path + ".expected",
                               derived_text(*hoisted) + "\n" + ir::to_text(hoisted->attention));
  // Hoisting again derives nothing.
  EXPECT_TRUE(rewrite::hoist(hoisted->attention, options(), {})->derived.empty());
}

INSTANTIATE_TEST_SUITE_P(Files, HoistGolden, ::testing::ValuesIn(case_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attn::masks::hoist_golden_tests
