#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

TEST(Names, UnknownOnesGetASuggestion) {
  const Analyzed analyzed = analyze_text("attention f(window = 4) { mask q_idx < windw; }");
  EXPECT_EQ(analyzed.codes, Codes{"E0201"});
  EXPECT_NE(analyzed.text.find("did you mean `window`?"), std::string::npos);
  EXPECT_NE(analyze_body("mask q >= kv_idx;").text.find("the query index is `q_idx`"),
            std::string::npos);
}

TEST(Names, AMistakeIsReportedOnce) {
  EXPECT_EQ(analyze_body("let x = wrong + 1; let y = x * x; mask y < x; mask !y; score x;").codes,
            Codes{"E0201"});
  EXPECT_EQ(analyze_body("tensor t: f33[B]; score t[0] + t;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("tensor t: f32[X]; score t[0] + t[b, h];").codes, Codes{"E0201"});
  EXPECT_EQ(analyze_text("import \"nowhere.attn\"; attention f { mask near(q_idx); }").codes,
            Codes{"E0209"});
  EXPECT_EQ(analyze_text("fn near(a) = a + wrong; attention f { mask near(1) && near(2); }").codes,
            Codes{"E0201"});
}

TEST(Names, ArePartOfOneSpace) {
  EXPECT_EQ(analyze_body("let x = 1; tensor x: f32[B]; score score * x;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_text("attention f(c = 1) { param c: f32; score score * c; }").codes,
            Codes{"E0202"});
  EXPECT_EQ(analyze_text("attention f(c = 1, c = 2) { score score * c; }").codes, Codes{"E0202"});
}

TEST(Names, OfTheLanguageAreReserved) {
  for (const char* name :
       {"score", "b", "h", "q_idx", "kv_idx", "q_raw", "o", "d_idx", "inf", "Sq", "D"}) {
    EXPECT_EQ(analyze_body(std::string("let ") + name + " = 1;").codes, Codes{"E0205"}) << name;
  }
  for (const char* name : {"q", "k", "v", "lse", "seed"}) {
    EXPECT_EQ(analyze_body(std::string("tensor ") + name + ": f32[B];").codes, Codes{"E0205"})
        << name;
    EXPECT_TRUE(analyze_body(std::string("let ") + name + " = 1;").attention) << name;
  }
}

TEST(Lets, AreSeenBelowTheirDefinition) {
  EXPECT_EQ(analyze_body("let w = 4; mask q_idx < w;").codes, Codes{});
  EXPECT_EQ(analyze_body("mask q_idx < w; let w = 4;").codes, Codes{"E0206"});
  EXPECT_EQ(analyze_body("let w = w + 1; mask q_idx < w;").codes, Codes{"E0206"});
}

TEST(Lets, KeepTheScoreOfTheirPlace) {
  const Analyzed analyzed =
      analyze_body("let before = score; score tanh(score); score score + before;");
  ASSERT_TRUE(analyzed.attention) << analyzed.text;
  EXPECT_EQ(to_source(*analyzed.attention, analyzed.attention->score), "tanh(score) + score");
}

TEST(Scores, ComposeInOrder) {
  const Analyzed analyzed = analyze_body("score score * 2; mask q_idx > 1; score tanh(score);");
  ASSERT_TRUE(analyzed.attention) << analyzed.text;
  EXPECT_EQ(to_source(*analyzed.attention, analyzed.attention->score), "tanh(score * 2.0)");
}

TEST(Sites, AllowWhatHasAValueThere) {
  EXPECT_EQ(mask("c > 1"), "c > 1.0");
  EXPECT_EQ(text_of("scale", "c / sqrt(D)"), "c / sqrt(64.0)");
  EXPECT_EQ(text_of("scale", "slopes[0]"), "E0207");
  EXPECT_EQ(text_of("scale", "score"), "E0207");
  EXPECT_EQ(text_of("scale", "1.0 * b"), "E0207");
  EXPECT_EQ(analyze_body("let x = score; mask x > 1;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("tensor t: f32[n]; param n: i32; score t[0];").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("tensor t: f32[h]; score t[0];").codes, Codes{"E0207"});
}

TEST(Functions, UnknownOnesGetASuggestion) {
  const Analyzed analyzed = analyze_body("score tahn(score);");
  EXPECT_EQ(analyzed.codes, Codes{"E0203"});
  EXPECT_NE(analyzed.text.find("did you mean `tanh`?"), std::string::npos);
  EXPECT_NE(analyze_body("tensor t: f32[B]; score t(b);").text.find("brackets"), std::string::npos);
}

TEST(Clauses, UnknownOnesGetASuggestion) {
  const Analyzed analyzed = analyze_body("masks q_idx > 1;");
  EXPECT_EQ(analyzed.codes, Codes{"E0204"});
  EXPECT_NE(analyzed.text.find("did you mean `mask`?"), std::string::npos);
}

TEST(Unused, AreWarnedOf) {
  const Analyzed analyzed = analyze_text(
      "attention f(w = 1, s = 8, _x = 1) { dims Sq = s; tensor t: f32[B]; param p: f32; let y = 1; "
      "}");
  EXPECT_TRUE(analyzed.attention);
  EXPECT_EQ(analyzed.codes, (Codes{"W0201", "W0201", "W0201", "W0201"}));
}

}  // namespace
}  // namespace attn::sema
