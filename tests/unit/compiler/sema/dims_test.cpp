#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

// "1, 2, .. n"
std::string sizes_up_to(int n) {
  std::string text = "1";
  for (int i = 2; i <= n; ++i) text += ", " + std::to_string(i);
  return text;
}

TEST(Sets, HaveABoundedNumberOfCombinations) {
  const std::string fifty = "{" + sizes_up_to(50) + "}";
  const std::string dims = "dims B = " + fifty + ", Hq = " + fifty + ", Sq = " + fifty + ";";
  const Analyzed analyzed = analyze_body(dims);
  EXPECT_EQ(analyzed.codes, Codes{"E0461"}) << analyzed.text;
  EXPECT_EQ(analyze_body(dims, {{"B", "1"}, {"Hq", "4"}}).codes, Codes{});
  const support::Source source("x.attn", "attention f { " + dims + " }");
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  ASSERT_TRUE(spec);
  EXPECT_EQ(variants(*spec, {}).size(), 1U);  // the error is that of any
  EXPECT_EQ(variants(*spec, {{"B", "1"}, {"Hq", "4"}}).size(), 50U);
  std::string listed = sizes_up_to(300);
  std::erase(listed, ' ');
  EXPECT_EQ(variants(*spec, {{"B", listed}, {"Hq", "1"}, {"Sq", "1"}}).size(), 1U);
}

using ir::Dim;

std::optional<std::int64_t> size(const Analyzed& analyzed, Dim dim) {
  EXPECT_TRUE(analyzed.attention) << analyzed.text;
  return analyzed.attention ? analyzed.attention->dims.get(dim) : std::nullopt;
}

void expect_sizes(const Analyzed& analyzed, const std::vector<std::pair<Dim, std::int64_t>>& all) {
  for (const auto& [dim, expected] : all)
    EXPECT_EQ(size(analyzed, dim), expected) << to_string(dim);
}

TEST(Dims, AreNumbersAndExpressions) {
  const Analyzed analyzed = analyze_text(
      "attention f(s = 64) { dims B = 2, Hkv = 2, Hq = Hkv * 4, Sq = s * 2, Skv = Sq + max(1, 3), "
      "Dqk = 192, Dv = 2 ** 7; }");
  expect_sizes(analyzed, {{Dim::B, 2},
                          {Dim::Hq, 8},
                          {Dim::Sq, 128},
                          {Dim::Skv, 131},
                          {Dim::Dqk, 192},
                          {Dim::Dv, 128}});
}

TEST(Dims, MayCallFunctionsOfNumbers) {
  const Analyzed analyzed = analyze_text(
      "attention f(rate = log(10000) / 4, n = int(exp2(5)), low = clamp(-3, -2, 7.5)) {"
      " dims B = minimum(2, 3), Hq = int(sqrt(Sq)), Sq = n * 8, Skv = int(ceil(log2(1000))),"
      " D = 32 * floor(n // 16); let x = rate; let y = low; score score * x + y; }");
  expect_sizes(analyzed,
               {{Dim::B, 2}, {Dim::Hq, 16}, {Dim::Sq, 256}, {Dim::Skv, 10}, {Dim::Dqk, 64}});
  for (const char* bad : {"sqrt(-1)", "log(0)", "exp(1000)", "int(1e30)", "sqrt(1, 2)", "atan2(1)",
                          "foo(1)", "abs()", "clamp(1, 2)", "gelu(1)"}) {
    const Analyzed wrong = analyze_text(fmt::format("attention f(a = {}) {{ scale a; }}", bad));
    EXPECT_EQ(wrong.codes, Codes{"E0308"}) << bad << wrong.text;
  }
}

TEST(Dims, DSetsBothHeadDimensions) {
  const Analyzed analyzed = analyze_body("dims D = 96; scale D;");
  EXPECT_EQ(size(analyzed, Dim::Dqk), 96);
  EXPECT_EQ(size(analyzed, Dim::Dv), 96);
  EXPECT_EQ(analyzed.attention->dag.real_of(analyzed.attention->scale), 96.0);
}

TEST(Dims, UnlistedOnesFollowOrStayOpen) {
  const Analyzed analyzed = analyze_body("dims Hq = 8, Sq = 32, Dqk = 64;");
  EXPECT_EQ(size(analyzed, Dim::Hkv), 8);
  EXPECT_EQ(size(analyzed, Dim::Skv), 32);
  EXPECT_EQ(size(analyzed, Dim::Dv), 64);
  EXPECT_EQ(size(analyzed, Dim::B), std::nullopt);
  EXPECT_FALSE(analyzed.attention->dims.bound());
}

TEST(Dims, ListedWithoutASizeAreOpen) {
  const Analyzed analyzed = analyze_body("dims B, Sq = 4, Skv, Hq = B * 2; mask kv_idx < Skv - B;");
  EXPECT_EQ(size(analyzed, Dim::Skv), std::nullopt);
  EXPECT_EQ(size(analyzed, Dim::Hq), std::nullopt);
  EXPECT_EQ(to_source(*analyzed.attention, analyzed.attention->masks[0]), "kv_idx < Skv - B");
}

TEST(Dims, BindingsReplaceWhatIsWritten) {
  const Analyzed analyzed = analyze_body("dims B = 2, Hq = 4, Sq = 64, Skv = 2 * Sq, D = 32;",
                                         {{"Sq", "100"}, {"D", "128"}});
  EXPECT_EQ(size(analyzed, Dim::Sq), 100);
  EXPECT_EQ(size(analyzed, Dim::Skv), 200);
  EXPECT_EQ(size(analyzed, Dim::Dqk), 128);
  EXPECT_EQ(size(analyzed, Dim::Dv), 128);
}

TEST(Dims, OneHeadDimensionMayBeBoundAlone) {
  const Analyzed analyzed = analyze_body("dims D = 128;", {{"Dqk", "192"}});
  EXPECT_EQ(size(analyzed, Dim::Dqk), 192);
  EXPECT_EQ(size(analyzed, Dim::Dv), 128);
  EXPECT_EQ(analyze_body("dims D = 128; scale 1 / D;", {{"Dqk", "192"}}).codes, Codes{"E0207"});
}

TEST(Dims, AreChecked) {
  EXPECT_EQ(analyze_body("dims B = 0;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = -1;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = 1.5;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = 4 / 2;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = 4294967296;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = 4 // 0;").codes, Codes{"E0308"});
  EXPECT_EQ(analyze_body("dims B = 2 ** 200;").codes, Codes{"E0308"});
  EXPECT_EQ(analyze_body("dims B = q_idx;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("dims B = 1 < 2;").codes, Codes{"E0308"});
  EXPECT_EQ(analyze_body("dims B = sqrt(4);").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims B = batch;").codes, Codes{"E0201"});
  EXPECT_EQ(analyze_body("dims D = 0;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("dims X = 1;").codes, Codes{"E0401"});
  EXPECT_EQ(analyze_body("dims B = 1; dims B = 1;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("dims D = 1, Dv = 1;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("dims B = B;").codes, Codes{"E0403"});
  EXPECT_EQ(analyze_body("dims Sq = Skv, Skv = Hq, Hq = Sq;").codes, Codes{"E0403"});
  EXPECT_EQ(analyze_body("dims Hq = 5, Hkv = 2;").codes, Codes{"E0404"});
  EXPECT_EQ(analyze_body("dims Hq = 5;", {{"Hkv", "2"}}).codes, Codes{"E0404"});
}

TEST(Parameters, AreConstants) {
  const std::string text =
      "attention f(w = 2, twice = w * 2, cap = 50) { mask q_idx < twice; score cap; }";
  const Analyzed plain = analyze_text(text);
  EXPECT_EQ(to_source(*plain.attention, plain.attention->masks[0]), "q_idx < 4");
  const Analyzed bound = analyze_text(text, {{"w", "-5"}});
  EXPECT_EQ(to_source(*bound.attention, bound.attention->masks[0]), "q_idx < -10");
}

TEST(Parameters, KeepTheTypeOfTheirDefault) {
  const std::string text = "attention f(cap = 50.0) { score cap * tanh(score / cap); }";
  const Analyzed bound = analyze_text(text, {{"cap", "30"}});
  ASSERT_TRUE(bound.attention) << bound.text;
  EXPECT_EQ(to_source(*bound.attention, bound.attention->score), "30.0 * tanh(score / 30.0)");
  EXPECT_EQ(analyze_text("attention f(w = 4) { mask q_idx < w; }", {{"w", "0.5"}}).codes,
            Codes{"E0602"});
  EXPECT_TRUE(analyze_text("attention f(w) { mask q_idx < w; }", {{"w", "0.5"}}).attention);
}

TEST(Parameters, NeedAValue) {
  EXPECT_EQ(analyze_text("attention f(w) { mask q_idx < w; }").codes, Codes{"E0603"});
  EXPECT_EQ(analyze_text("attention f(w = Sq) { mask q_idx < w; }").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_text("attention f(w = v, v = 1) { mask q_idx < w * v; }").codes,
            Codes{"E0201"});
  EXPECT_EQ(analyze_text("attention f(w = 4294967296) { mask q_idx < w; }").codes, Codes{"E0104"});
}

TEST(Bindings, AreChecked) {
  const std::string text = "attention f(w = 4) { mask q_idx < w; }";
  EXPECT_EQ(analyze_text(text, {{"x", "1"}}).codes, Codes{"E0601"});
  EXPECT_EQ(analyze_text(text, {{"w", ""}}).codes, Codes{"E0602"});
  EXPECT_EQ(analyze_text(text, {{"w", "four"}}).codes, Codes{"E0602"});
  EXPECT_EQ(analyze_text(text, {{"B", "0"}}).codes, Codes{"E0602"});
  EXPECT_EQ(analyze_text(text, {{"B", "1.0"}}).codes, Codes{"E0602"});
  EXPECT_EQ(analyze_text(text, {{"B", "9999999999"}}).codes, Codes{"E0602"});
  EXPECT_EQ(analyze_text(text, {{"q_idx", "1"}}).codes, Codes{"E0601"});
  EXPECT_TRUE(analyze_text(text, {{"w", "0x10"}, {"B", "3"}}).attention);
}

}  // namespace
}  // namespace attn::sema
