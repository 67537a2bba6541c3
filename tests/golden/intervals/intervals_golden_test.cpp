// The visible columns of every spec of the library, as intervals: specs.expected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "compiler/ast/parse.h"
#include "compiler/passes/analysis/intervals.h"
#include "compiler/passes/rewrite/simplify.h"
#include "compiler/sema/analyze.h"
#include "tests/support/golden.h"

namespace attn::passes {
namespace {

std::set<std::filesystem::path> specs() {
  std::set<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / "specs")) {
    if (entry.path().extension() == ".attn") found.insert(entry.path());
  }
  return found;
}

std::string text_of(const VisibleColumns& columns) {
  const ir::Attention& attention = columns.attention;
  std::string text = attention.name + "\n";
  for (const ir::ExprId mask : attention.masks) {
    text += fmt::format("  mask  {}\n", ir::to_source(attention, mask));
  }
  for (const Interval& interval : columns.intervals) {
    text += fmt::format("  {}{}\n", interval.exact ? "" : "in ", to_source(columns, interval));
  }
  return text;
}

TEST(IntervalsGolden, OfTheLibrary) {
  std::string text;
  for (const auto& path : specs()) {
    const auto source = support::Source::read(path.string());
    ASSERT_TRUE(source.ok());
    diag::Sink sink(*source);
    const auto spec = ast::parse(*source, sink);
    ASSERT_TRUE(spec.has_value()) << diag::to_text(sink);
    const auto attention = sema::analyze(*spec, {}, sink);
    ASSERT_TRUE(attention.has_value()) << diag::to_text(sink);
    if (attention->masks.empty()) continue;
    const VisibleColumns columns = visible_columns(simplify(*attention));
    ASSERT_TRUE(ir::verify(columns.attention).ok());
    if (!text.empty()) text += '\n';
    text += text_of(columns);
  }
  attn::testing::expect_golden("tests/golden/intervals/specs.expected", text);
}

}  // namespace
}  // namespace attn::passes
