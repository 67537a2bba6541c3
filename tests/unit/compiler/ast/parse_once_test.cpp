#include <gtest/gtest.h>

#include "compiler/ast/parse.h"

namespace attn::ast {
namespace {

TEST(Parse, OfTheSameTextReportsAndReturnsTheSame) {
  const support::Source source("f.attn", "attention f { mask q_idx >= ; scale 1.0.0; }");
  diag::Sink first(source), second(source);
  EXPECT_FALSE(parse(source, first).has_value());
  const support::Source copy = source;
  EXPECT_FALSE(parse(copy, second).has_value());
  EXPECT_GT(first.error_count(), 0U);
  EXPECT_EQ(diag::to_text(first), diag::to_text(second));
}

TEST(Parse, ASpecCanBeChangedByItsReader) {
  const support::Source source("f.attn", "attention f { mask q_idx >= kv_idx; }");
  diag::Sink sink(source);
  std::optional<Spec> spec = parse(source, sink);
  ASSERT_TRUE(spec.has_value());
  spec->clauses.clear();
  EXPECT_EQ(parse(source, sink)->clauses.size(), 1U);
}

}  // namespace
}  // namespace attn::ast
