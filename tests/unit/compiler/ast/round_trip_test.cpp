// DSL -> JSON -> DSL -> JSON: both surfaces are one tree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/ast/parsing.h"

namespace attn::ast {
namespace {

void expect_round_trip(const Spec& spec) {
  const std::string dsl = to_dsl(spec);
  const std::string json = to_json(spec);
  const Parsed from_json = parse_text(json, "x.attn.json");
  ASSERT_TRUE(from_json.spec) << json << from_json.text;
  EXPECT_EQ(to_dsl(*from_json.spec), dsl);
  EXPECT_EQ(to_json(*from_json.spec), json);
  const Parsed from_dsl = parse_text(dsl);
  ASSERT_TRUE(from_dsl.spec) << dsl << from_dsl.text;
  EXPECT_EQ(to_dsl(*from_dsl.spec), dsl);
  EXPECT_EQ(to_json(*from_dsl.spec), json);
}

TEST(RoundTrip, EverySpec) {
  int count = 0;
  const auto folder = std::filesystem::path(ATTN_SOURCE_DIR) / "specs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".attn") continue;
    const auto source = support::Source::read(entry.path().string());
    ASSERT_TRUE(source.ok());
    const Parsed parsed = parse_text(std::string(source->text()));
    ASSERT_TRUE(parsed.spec) << entry.path() << parsed.text;
    expect_round_trip(*parsed.spec);
    ++count;
  }
  EXPECT_GE(count, 20);
}

// A random expression: every operator beside every other.
Expr random_expr(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  static const char* const kLeaves[] = {"1", "0.5", ".5", "5.", "0x1f", "1_000", "1e-5", "007"};
  if (depth == 0 || pick(5) == 0) {
    if (pick(2) == 0) return make_expr(ExprKind::number, {}, kLeaves[pick(8)], {}, {});
    return make_expr(ExprKind::name, {}, pick(2) == 0 ? "score" : "kv_idx", {}, {});
  }
  std::vector<Expr> operands;
  const auto add = [&](int n) {
    for (int i = 0; i < n; ++i) operands.push_back(random_expr(random, depth - 1));
  };
  const auto op = static_cast<Operator>(pick(static_cast<int>(Operator::pow) + 1));
  if (pick(6) == 0) {
    add(pick(4));
    return make_expr(ExprKind::call, {}, "f", {}, std::move(operands));
  }
  if (pick(6) == 0) {
    operands.push_back(make_expr(ExprKind::name, {}, "j", {}, {}));
    add(3);
    return make_expr(ExprKind::reduce, {}, "any", {}, std::move(operands));
  }
  if (arity(op) == 1) {
    add(1);
    return make_expr(ExprKind::unary, {}, "", {op}, std::move(operands));
  }
  if (!is_comparison(op)) {
    add(2);
    return make_expr(ExprKind::binary, {}, "", {op}, std::move(operands));
  }
  std::vector<Operator> chain(static_cast<std::size_t>(1 + pick(3)), op);
  add(static_cast<int>(chain.size()) + 1);
  return make_expr(ExprKind::compare, {}, "", std::move(chain), std::move(operands));
}

TEST(RoundTrip, RandomExpressions) {
  std::mt19937 random(20240229);
  for (int i = 0; i < 2000; ++i) {
    Spec spec;
    spec.name.text = "f";
    Clause& clause = spec.clauses.emplace_back();
    clause.keyword.text = "mask";
    clause.body = MaskClause{random_expr(random, 5)};
    expect_round_trip(spec);
    if (HasFailure()) break;
  }
}

TEST(RoundTrip, ParenthesesAreThoseTheTreeAndItsReaderNeed) {
  const auto printed = [](const std::string& text) { return to_dsl(mask_of(parse_mask(text))); };
  EXPECT_EQ(printed("((a) || (b)) || (c && (d))"), "a || b || (c && d)");
  EXPECT_EQ(printed("a || (b || c)"), "a || (b || c)");
  EXPECT_EQ(printed("(a < b) && !(c) && (d || e)"), "a < b && !c && (d || e)");
  EXPECT_EQ(printed("(a < b) & (c < d)"), "(a < b) & (c < d)");
}

TEST(RoundTrip, BoundsOfReductions) {
  for (const char* bounds :
       {"-1..3", "Skv - 4..4", "-Skv..-1", "2 * 3..8", "0..8", "1e3..0x10", "(1.)..2",
        "(a - 1.)..2", ".5...5", "a && b..c", "f(1)..t[2]", "1_0..2 ** -x", "+1..~2"}) {
    const std::string text = fmt::format("any(j in {}: j == q_idx)", bounds);
    const Parsed parsed = parse_mask(text);
    ASSERT_TRUE(parsed.spec) << text << parsed.text;
    EXPECT_EQ(to_dsl(mask_of(parsed)), text);
    expect_round_trip(*parsed.spec);
  }
  EXPECT_EQ(to_dsl(mask_of(parse_mask("any(j in Skv-4..4: j == 0)"))),
            "any(j in Skv - 4..4: j == 0)");
}

TEST(RoundTrip, EveryClauseAndForm) {
  const Parsed parsed = parse_text(R"(attention f(a = -1, b, c = .5) {
    dims B = 2, Sq, D = a * 2;  dtype f16;  layout strides(1, 2, 3, 4);
    layout q: bshd, o: strides(a, 2, 3, 1_0);  tensor t: bool[B, Hq + 1];  param p: f32;
    let x = t[b, -1] || !true;  scale 1;  score score;  mask a <= b < c;  outputs lse;
    align top_left;  normalize sigmoid;  weight relu(score) / sum(abs(score));
    prologue q: x[d_idx] * rsqrt(sum(x[d_idx] ** 2));  prologue k: x[0];
    epilogue o * t[d_idx];  gate gate;
    branch x: q = q2, v = w;  branch branch;  combine x - 2 * branch;
    values k[0..a * 2];  values values[a..1];  gather t;  gather gather, values;
    shard both;  quantize per_tensor;  quantize x, o: bf16, scale_s = 2 ** 8, descale_s = [1 / a];
  })");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  expect_round_trip(*parsed.spec);
}

}  // namespace
}  // namespace attn::ast
