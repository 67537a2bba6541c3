#include "tools/table.h"

#include <gtest/gtest.h>

namespace attn::tools {
namespace {

using support::Paint;
using support::Style;

const std::vector<Table::Column> kColumns = {{"name"}, {"ms", Align::right}, {"note"}};

TEST(Table, ColumnsAreAligned) {
  Table table(kColumns);
  table.add({"a", "1.5", "fast"});
  table.add({"longer", "10.25", ""});
  EXPECT_EQ(table.to_text("  "),
            "  name       ms  note\n"
            "  a         1.5  fast\n"
            "  longer  10.25\n");
}

TEST(Table, ColourIsNotCounted) {
  Table table(kColumns);
  table.add({{"a", Style::error}, "1", "x"});
  EXPECT_EQ(table.to_text("", Paint(true)),
            "\x1b[1mname\x1b[0m  \x1b[1mms\x1b[0m  \x1b[1mnote\x1b[0m\n"
            "\x1b[1m\x1b[31ma\x1b[0m      1  x\n");
}

TEST(Table, RowsThatArePrintedAtOnceWidenTheColumns) {
  GrowingTable table(kColumns, {5}, Paint());
  EXPECT_EQ(table.titles(), "name   ms  note\n");
  EXPECT_EQ(table.row({"a", "1", "x"}), "a       1  x\n");
  EXPECT_EQ(table.row({"longest", "100", "x"}), "longest  100  x\n");
  EXPECT_EQ(table.row({"a", "1", "x"}), "a          1  x\n");
}

}  // namespace
}  // namespace attn::tools
