#include <cmath>

#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

TEST(Promotion, DivisionIsReal) {
  EXPECT_EQ(score("q_idx / kv_idx"), "q_idx / kv_idx");
  const Analyzed analyzed = analyze_body("score q_idx / kv_idx;");
  const ir::Node& node = analyzed.attention->dag[analyzed.attention->score];
  EXPECT_TRUE(node.is(ir::Op::div_));
  EXPECT_TRUE(analyzed.attention->dag[node.operands[0]].is(ir::Op::to_real_));
}

TEST(Promotion, IntegersBecomeRealBesideAReal) {
  EXPECT_EQ(score("score + 1"), "score + 1.0");
  EXPECT_EQ(score("50 * score"), "50.0 * score");
  EXPECT_EQ(score("score // 2"), "score // 2.0");
  EXPECT_EQ(mask("kv_idx // 2 == 3"), "kv_idx // 2 == 3");
  EXPECT_EQ(mask("c < 1"), "c < 1.0");
  EXPECT_EQ(mask("doc[b, kv_idx] < n"), "doc[b, kv_idx] < n");
}

TEST(Promotion, BooleansCountAsNumbers) {
  const Analyzed analyzed = analyze_body("score score + (q_idx >= kv_idx);");
  ASSERT_TRUE(analyzed.attention) << analyzed.text;
  const ir::Dag& dag = analyzed.attention->dag;
  const ir::Node& sum = dag[analyzed.attention->score];
  EXPECT_TRUE(dag[sum.operands[1]].is(ir::Op::to_real_));
  EXPECT_EQ(dag[dag[sum.operands[1]].operands[0]].type, ir::Type::boolean);
  EXPECT_NE(mask("(q_idx > 1) + (q_idx > 2) == 1"), "E0301");
  EXPECT_NE(mask("(q_idx > 1) == flag[kv_idx]"), "E0301");
}

TEST(Promotion, AnIntegerScoreOrScaleIsReal) {
  EXPECT_EQ(text_of("scale", "1"), "1.0");
  EXPECT_NE(score("q_idx - kv_idx"), "E0301");
}

TEST(Powers, OfIntegersStayIntegers) {
  EXPECT_EQ(mask("q_idx ** 2 < 9"), "q_idx * q_idx < 9");
  EXPECT_EQ(mask("q_idx ** 0 == 1"), "1 == 1");
  EXPECT_EQ(mask("q_idx < 2 ** 10"), "q_idx < 1024");
  EXPECT_EQ(mask("q_idx < (-2) ** 3"), "q_idx < -8");
  EXPECT_EQ(mask("q_idx < 2 ** 31"), "E0308");
  EXPECT_EQ(mask("q_idx < 1 ** 2000000000"), "q_idx < 1");
  EXPECT_EQ(mask("q_idx < (-1) ** 2000000001"), "q_idx < -1");
  EXPECT_EQ(mask("q_idx < 0 ** 0"), "q_idx < 1");
}

TEST(Integers, BeyondThirtyTwoBitsAreWrittenInLong) {
  EXPECT_EQ(mask("q_idx < long(1099511627776)"), "long(q_idx) < long(1099511627776)");
  EXPECT_EQ(mask("long(-5_000_000_000) < kv_idx"), "long(-5000000000) < long(kv_idx)");
  EXPECT_EQ(score("score * long(0x200000000)"), "score * 8589934592.0");
  EXPECT_EQ(mask("q_idx < long(2) ** 2"), "q_idx < long(2) * long(2)");
  EXPECT_EQ(mask("q_idx < 1099511627776"), "E0104");
  EXPECT_EQ(mask("q_idx < long(99999999999999999999)"), "E0104");
  EXPECT_EQ(mask("q_idx < long(-9223372036854775808)"), "long(q_idx) < long(-9223372036854775808)");
  EXPECT_EQ(mask("q_idx < long(-0x8000000000000000)"), "long(q_idx) < long(-9223372036854775808)");
  EXPECT_EQ(mask("q_idx < long(-9223372036854775809)"), "E0104");
  EXPECT_EQ(mask("q_idx < long(9223372036854775808)"), "E0104");
  EXPECT_EQ(mask("q_idx < -9223372036854775808"), "E0104");
}

TEST(Integers, OfSixtyFourBitsBecomeOnesOfThirtyTwo) {
  EXPECT_EQ(mask("int(long(q_idx) * 3) < 9"), "int(long(q_idx) * long(3)) < 9");
  EXPECT_EQ(mask("int(long(q_idx)) < 9"), "q_idx < 9");
  EXPECT_EQ(mask("doc[b, int(long(kv_idx) * 5)] == 1"), "doc[b, int(long(kv_idx) * long(5))] == 1");
  EXPECT_EQ(mask("int(q_idx) < 9"), "q_idx < 9");
  EXPECT_EQ(mask("q_idx < int(long(4294967299))"), "q_idx < 3");
}

TEST(Powers, OtherwiseAreReal) {
  EXPECT_EQ(score("score ** 2"), "score ** 2.0");
  EXPECT_EQ(score("2 ** -1"), "2.0 ** (-1.0)");
  EXPECT_EQ(score("pow(2, h)"), score("2 ** h"));
}

TEST(Comparisons, ChainAsConjunctions) {
  EXPECT_EQ(mask("1 <= kv_idx < 8"), "1 <= kv_idx && kv_idx < 8");
  EXPECT_EQ(mask("1 < q_idx < kv_idx < 9"), "1 < q_idx && q_idx < kv_idx && kv_idx < 9");
}

TEST(Logic, OfBooleansInBothSpellings) {
  EXPECT_EQ(mask("(q_idx >= kv_idx) & (q_idx - kv_idx < 9)"),
            mask("q_idx >= kv_idx && q_idx - kv_idx < 9"));
  EXPECT_EQ(mask("flag[0] | flag[1]"), mask("flag[0] || flag[1]"));
  EXPECT_EQ(mask("~flag[0]"), mask("!flag[0]"));
  EXPECT_NE(mask("flag[0] ^ flag[1]"), "E0302");
  EXPECT_EQ(mask("band(flag[0], flag[1])"), mask("flag[0] & flag[1]"));
  EXPECT_EQ(mask("q_idx && true"), "E0301");
  EXPECT_EQ(mask("!q_idx"), "E0301");
}

TEST(Bits, OfIntegers) {
  EXPECT_EQ(mask("(q_idx & 3) == 0"), mask("band(q_idx, 3) == 0"));
  EXPECT_EQ(mask("q_idx ^ 1 == kv_idx"), mask("bxor(q_idx, 1) == kv_idx"));
  EXPECT_EQ(mask("q_idx << 1 == bnot(kv_idx)"), mask("shl(q_idx, 1) == ~kv_idx"));
  EXPECT_EQ(mask("q_idx >> 31 == 0"), mask("shr(q_idx, 31) == 0"));
  EXPECT_EQ(mask("q_idx >> 32 == 0"), "E0308");
  EXPECT_EQ(mask("(q_idx > 1) & q_idx == 0"), "E0302");
  EXPECT_EQ(score("score & 1"), "E0302");
  EXPECT_EQ(score("~score"), "E0302");
  EXPECT_EQ(mask("flag[0] << 1 == 2"), "E0302");
}

TEST(Bits, InAChainWarn) {
  const Analyzed analyzed = analyze_body("mask q_idx >= kv_idx & q_idx - kv_idx < 9;");
  EXPECT_TRUE(analyzed.attention);
  EXPECT_EQ(analyzed.codes, Codes{"W0301"});
  EXPECT_EQ(analyze_body("mask q_idx >= (kv_idx & q_idx) < 9;").codes, Codes{});
  EXPECT_EQ(analyze_body("mask kv_idx & 1 == 0;").codes, Codes{});
}

TEST(Division, ByZeroIsAnError) {
  EXPECT_EQ(mask("q_idx // 0 == 1"), "E0308");
  EXPECT_EQ(mask("q_idx % (0) == 1"), "E0308");
  EXPECT_EQ(score("score / 0"), "score / 0.0");  // a real division has a value
}

TEST(Constants, InfinityAndSigns) {
  EXPECT_EQ(score("where(q_idx >= kv_idx, score, -inf)"), "where(q_idx >= kv_idx, score, -inf)");
  const Analyzed analyzed = analyze_body("score -inf;");
  EXPECT_EQ(analyzed.attention->dag.real_of(analyzed.attention->score), -INFINITY);
  EXPECT_EQ(mask("q_idx > -1"), "q_idx > -1");
  EXPECT_EQ(mask("q_idx > +kv_idx"), "q_idx > kv_idx");
  EXPECT_EQ(mask("q_idx > 2147483647"), "q_idx > 2147483647");
  EXPECT_EQ(mask("q_idx > 2147483648"), "E0104");
}

TEST(Loads, TakeAnyIntegerIndex) {
  EXPECT_EQ(score("score + slopes[h]"), "score + slopes[h]");
  EXPECT_EQ(mask("doc[b, doc[b, q_idx] % 4] == 1"), "doc[b, doc[b, q_idx] % 4] == 1");
  EXPECT_EQ(score("slopes[h // 2 + 1]"), "slopes[h // 2 + 1]");
  EXPECT_EQ(mask("flag[n]"), "flag[n]");
  EXPECT_EQ(mask("flag[127]"), "flag[127]");
}

TEST(Loads, AreChecked) {
  EXPECT_EQ(mask("flag[128]"), "E0306");
  EXPECT_EQ(mask("flag[-1]"), "E0306");
  EXPECT_EQ(mask("flag[h / 2]"), "E0306");
  EXPECT_EQ(mask("flag[flag[0]]"), "E0306");
  EXPECT_EQ(mask("doc[b]"), "E0305");
  EXPECT_EQ(mask("doc[b, 1, 2]"), "E0305");
  EXPECT_EQ(mask("doc"), "E0303");
  EXPECT_EQ(mask("c[0]"), "E0304");
  EXPECT_EQ(mask("h[0]"), "E0304");
  EXPECT_EQ(mask("Sq[0]"), "E0304");
}

TEST(Types, AreWhatTheClauseNeeds) {
  EXPECT_EQ(mask("q_idx"), "E0301");
  EXPECT_EQ(mask("score > 1"), "E0207");
  EXPECT_EQ(score("q_idx > 1"), "E0301");
  EXPECT_EQ(text_of("scale", "true"), "E0301");
}

TEST(Positions, AreThoseOfTheText) {
  const Analyzed analyzed = analyze_body("score\n  score *\n    2;");
  const ir::Node& node = analyzed.attention->dag[analyzed.attention->score];
  EXPECT_EQ(node.pos.line, 3U);
  EXPECT_EQ(node.pos.column, 9U);
}

}  // namespace
}  // namespace attn::sema
