#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

std::string first_mask(const std::string& text) {
  const Analyzed analyzed = analyze_text(text);
  EXPECT_EQ(analyzed.text, "") << text;
  if (!analyzed.attention || analyzed.attention->masks.empty()) return "";
  return to_source(analyzed.attention->dag, analyzed.attention->masks[0]);
}

std::string with(const std::string& functions, const std::string& body) {
  return functions + " attention f { dims B = 2, Hq = 4, Sq = 16, D = 64; " + body + " }";
}

TEST(Calls, AreWrittenOut) {
  EXPECT_EQ(first_mask(with("fn near(w) = q_idx - kv_idx < w;", "mask near(4);")),
            "q_raw - kv_idx < 4");
  EXPECT_EQ(
      first_mask(with("fn a() = b2() && q_idx >= kv_idx; fn b2() = kv_idx > 1;", "mask a();")),
      "kv_idx > 1 && q_raw >= kv_idx");
}

TEST(Calls, ArgumentsHaveTheMeaningTheyHaveOutside) {
  // The caller's q_idx, although a parameter of the function has this name.
  EXPECT_EQ(first_mask(with("fn f2(q_idx, x) = q_idx < x;", "mask f2(kv_idx, q_idx);")),
            "kv_idx < q_raw");
}

TEST(Calls, TensorsGoByName) {
  EXPECT_EQ(first_mask(with("fn same(ids) = ids[b, q_idx] == ids[b, kv_idx];"
                            "fn twice(t) = same(t);",
                            "tensor doc: i32[B, Skv]; mask twice(doc);")),
            "doc[b, q_raw] == doc[b, kv_idx]");
}

TEST(Calls, OnlyFunctionsInsideSeeTheSpec) {
  EXPECT_EQ(first_mask(with("",
                            "tensor n: i32[B]; let w = n[b] + 1; fn near() = kv_idx < w;"
                            "mask near();")),
            "kv_idx < n[b] + 1");
  EXPECT_EQ(
      analyze_text(with("fn near() = kv_idx < n[b];", "tensor n: i32[B]; mask near();")).codes,
      Codes{"E0201"});
}

TEST(Calls, BodiesMayBePastedFromPython) {
  const std::string body = R"(
    fn mod(score, b, h, q_idx, kv_idx) {
      # a comment
      bias = torch.abs(q_idx - kv_idx) * math.log(2.0)
      visible = q_idx >= kv_idx
      return torch.where(visible, score + bias, -float("inf"))
    }
    score mod(score, b, h, q_idx, kv_idx);)";
  const Analyzed analyzed = analyze_text(with("", body));
  ASSERT_TRUE(analyzed.attention) << analyzed.text;
  EXPECT_EQ(to_source(analyzed.attention->dag, analyzed.attention->score),
            "where(q_raw >= kv_idx, score + abs(q_raw - kv_idx) * log(2.0), -inf)");
}

TEST(Calls, SpreadNoNames) {
  EXPECT_EQ(analyze_text(with("fn a(x) = c(1); fn c(y) = x + y;", "score score + a(2);")).codes,
            Codes{"E0201"});
  EXPECT_EQ(analyze_text(with("fn c() = j;", "mask any(j in 0..2: c() == 1);")).codes,
            Codes{"E0201"});
}

TEST(Calls, AreChecked) {
  EXPECT_EQ(analyze_text(with("fn a(x) = x;", "score a();")).codes, Codes{"E0307"});
  EXPECT_EQ(analyze_text(with("fn a(x) = a(x);", "score a(1);")).codes, Codes{"E0208"});
  EXPECT_EQ(analyze_text(with("fn a(x) = x; fn a(x) = x;", "score a(1);")).codes, Codes{"E0202"});
  EXPECT_EQ(analyze_text(with("fn a(x) = x;", "score a;")).codes, Codes{"E0301"});
  EXPECT_EQ(analyze_text(with("fn a() = score > 1.0;", "mask a();")).codes, Codes{"E0207"});
  EXPECT_EQ(analyze_text(with("fn tanh(x) = x;", "")).codes, Codes({"E0205"}));
}

TEST(Calls, SayWhereTheyWereMade) {
  const Analyzed analyzed = analyze_text(with("fn a(x) = x && true;", "mask a(1);"));
  EXPECT_NE(analyzed.text.find("called here"), std::string::npos) << analyzed.text;
}

TEST(Calls, DoNotGrowWithoutBound) {
  std::string functions = "fn f0(x) = x * x + x;";
  for (int i = 1; i < 60; ++i) {
    functions += "fn f" + std::to_string(i) + "(x) = f" + std::to_string(i - 1) + "(x) * f" +
                 std::to_string(i - 1) + "(x + 1);";
  }
  const Analyzed analyzed = analyze_text(with(functions, "score f59(score);"));
  EXPECT_LT(analyzed.codes.size(), 10U) << analyzed.text;
  EXPECT_EQ(analyzed.codes[0], "E0105") << analyzed.text;
  const Analyzed nested = analyze_text(
      with("", "mask any(i in 0..4000: any(j in 0..4000: any(k in 0..4000: kv_idx == i+j+k)));"));
  EXPECT_EQ(nested.codes, Codes{"E0105"}) << nested.text;
}

TEST(Calls, AreTooLargeAtOnce) {
  const std::string outer = "mask any(j in 0..1000: ";
  for (const char* inner : {"any(i in 0..1000: kv_idx == i * j)", "sum(i in 0..1000: 1) > kv_idx",
                            "min(i in 0..1000: kv_idx - i * j) < 0"}) {
    const support::Source source("x.attn", with("", outer + inner + ");"));
    diag::Sink sink(source);
    EXPECT_FALSE(analyze(*ast::parse(source, sink), {}, sink)) << inner;
    ASSERT_EQ(sink.sorted().size(), 1U) << inner;
    EXPECT_EQ(sink.sorted()[0].span.begin, source.text().find("any(j")) << inner;
    EXPECT_LT(sink.work(), 100'000U) << inner;
  }
}

TEST(Calls, StopAtALimitOfWork) {
  const support::Source source("x.attn",
                               with("", "let unused = 1; mask any(j in 0..100: kv_idx == j);"));
  for (const std::uint64_t limit : {100U, 1000U}) {
    diag::Sink sink(source);
    const auto spec = ast::parse(source, sink);
    ASSERT_TRUE(spec);
    const auto attention = analyze(*spec, load_imports(*spec, sink), {}, sink, nullptr, limit);
    EXPECT_EQ(sink.is_stopped(), limit == 100);
    EXPECT_EQ(attention.has_value(), limit == 1000);
    EXPECT_EQ(sink.sorted().size(), limit == 1000 ? 1U : 0U);  // whether `unused` is used
    EXPECT_LE(sink.work(), limit);
  }
}

TEST(Reductions, AreWrittenOut) {
  EXPECT_EQ(first_mask(with("", "mask any(j in 0..3: kv_idx == 4 * j);")),
            "kv_idx == 4 * 0 || kv_idx == 4 * 1 || kv_idx == 4 * 2");
  EXPECT_EQ(first_mask(with("fn tiles(n) = all(j in 1..n: kv_idx != j);", "mask tiles(3);")),
            "kv_idx != 1 && kv_idx != 2");
  EXPECT_EQ(first_mask(with("", "mask sum(j in 0..2: kv_idx > j) == 1;")),
            "where(kv_idx > 0, 1, 0) + where(kv_idx > 1, 1, 0) == 1");
  EXPECT_EQ(first_mask(with("", "mask any(j in 0..0: kv_idx == j);")), "false");
  EXPECT_EQ(first_mask(with("", "mask max(j in 0..2: kv_idx - j) > 0;")),
            "max(kv_idx - 0, kv_idx - 1) > 0");
}

TEST(Imports, BringTheStandardLibrary) {
  const Analyzed analyzed = analyze_text("import \"masks.attn\"; attention f { mask causal(); }");
  ASSERT_TRUE(analyzed.attention) << analyzed.text;
  EXPECT_EQ(to_source(analyzed.attention->dag, analyzed.attention->masks[0]), "q_raw >= kv_idx");
  // Places are those of the call: the text of the library is not the user's.
  EXPECT_EQ(analyzed.attention->dag[analyzed.attention->masks[0]].pos.line, 1U);
  EXPECT_EQ(analyze_text("import \"masked.attn\"; attention f { }").codes, Codes{"E0209"});
  EXPECT_EQ(analyze_text("attention f { mask causal(); }").text.find("import \"masks.attn\"") ==
                std::string::npos,
            false);
}

TEST(Imports, ALibraryAloneIsNoSpec) {
  EXPECT_EQ(analyze_text("fn a() = 1;").codes, Codes{"E0210"});
}

}  // namespace
}  // namespace attn::sema
