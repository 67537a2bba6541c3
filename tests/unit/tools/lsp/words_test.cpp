#include "tools/lsp/words.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/ir/attention.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/sema/layouts.h"
#include "compiler/sema/names.h"
#include "compiler/sema/operations.h"
#include "compiler/sema/sums.h"

namespace attn::tools::lsp {
namespace {

std::set<std::string_view> described(WordKind kind) {
  std::set<std::string_view> names;
  for (const Word& word : all_words()) {
    EXPECT_FALSE(word.form.empty() || word.text.empty()) << word.name;
    if (word.kind == kind) {
      EXPECT_TRUE(names.insert(word.name).second) << word.name;
    }
  }
  return names;
}

std::set<std::string_view> set_of(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

TEST(Words, AreThoseOfTheCompiler) {
  auto clauses = set_of(sema::built_clauses());
  clauses.insert({"import", "attention"});
  EXPECT_EQ(described(WordKind::clause), clauses);
  EXPECT_EQ(described(WordKind::dimension), set_of(sema::dimension_names()));
  EXPECT_EQ(described(WordKind::value), set_of(sema::bound_names()));
  auto functions = set_of(sema::function_names());
  functions.insert({"any", "all", "sum"});  // reductions
  functions.insert(sema::kCumsum);
  EXPECT_EQ(described(WordKind::function), functions);
  std::set<std::string_view> outputs;
  for (const ir::Output& output : ir::kOutputs) outputs.insert(output.name);
  EXPECT_EQ(described(WordKind::output), outputs);
  std::set<std::string_view> choices = {
      to_string(ir::Align::top_left),     to_string(ir::Align::bottom_right),
      to_string(ir::Normalize::softmax),  to_string(ir::Normalize::sigmoid),
      to_string(ir::Scaling::per_tensor), to_string(ir::Scaling::mxfp8),
      to_string(ir::Shard::sequence),     to_string(ir::Shard::heads),
      to_string(ir::Shard::both),         "kv"};
  for (const ir::CacheScaleInfo& each : ir::cache_scales()) choices.insert(each.name);
  EXPECT_EQ(described(WordKind::choice), choices);
}

TEST(Words, HaveEveryType) {
  const auto types = described(WordKind::type);
  for (const std::string_view type : types) EXPECT_TRUE(parse_dtype(type).has_value()) << type;
  EXPECT_EQ(types.size(), 11U);
}

TEST(Words, HaveEveryLayout) {
  for (const std::string_view layout : described(WordKind::layout)) {
    const bool is_known = layout == "strides" || ir::parse_layout_kind(layout).has_value();
    EXPECT_TRUE(is_known) << layout;
  }
  EXPECT_EQ(described(WordKind::layout).size(), 8U);
}

}  // namespace
}  // namespace attn::tools::lsp
