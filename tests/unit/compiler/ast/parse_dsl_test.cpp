#include <gtest/gtest.h>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/ast/parsing.h"

namespace attn::ast {
namespace {

using diag::Code;

// The tree with every operation in parentheses.
std::string grouped(const Expr& expr) {
  const auto all = [](const Expr& e) {
    std::string out;
    for (const Expr& operand : e.operands) out += (out.empty() ? "" : ", ") + grouped(operand);
    return out;
  };
  switch (expr.kind) {
    case ExprKind::unary:
      return std::string("(") + std::string(spelling(expr.operators[0])) +
             grouped(expr.operands[0]) + ")";
    case ExprKind::binary:
    case ExprKind::compare: {
      std::string out = "(";
      out += grouped(expr.operands[0]);
      for (std::size_t i = 0; i < expr.operators.size(); ++i) {
        out += " ";
        out += spelling(expr.operators[i]);
        out += " ";
        out += grouped(expr.operands[i + 1]);
      }
      return out + ")";
    }
    case ExprKind::call: return expr.text + "(" + all(expr) + ")";
    case ExprKind::index: return expr.text + "[" + all(expr) + "]";
    case ExprKind::list: return "[" + all(expr) + "]";
    default: return expr.text;
  }
}

std::string tree(const std::string& expression) {
  const Parsed parsed = parse_mask(expression);
  return parsed.spec ? grouped(mask_of(parsed)) : parsed.text;
}

TEST(Precedence, IsPythons) {
  EXPECT_EQ(tree("a + b * c"), "(a + (b * c))");
  EXPECT_EQ(tree("a - b - c"), "((a - b) - c)");
  EXPECT_EQ(tree("a // b % c"), "((a // b) % c)");
  EXPECT_EQ(tree("-x ** 2"), "(-(x ** 2))");
  EXPECT_EQ(tree("2 ** -x"), "(2 ** (-x))");
  EXPECT_EQ(tree("a ** b ** c"), "(a ** (b ** c))");
  EXPECT_EQ(tree("2 ** -x ** 2 * 3"), "((2 ** (-(x ** 2))) * 3)");
  EXPECT_EQ(tree("-a * b"), "((-a) * b)");
  EXPECT_EQ(tree("- - + ~!a"), "(-(-(+(~(!a)))))");
  EXPECT_EQ(tree("a & b | c ^ d"), "((a & b) | (c ^ d))");
  EXPECT_EQ(tree("a << 1 + 2 & 3"), "((a << (1 + 2)) & 3)");
  EXPECT_EQ(tree("a < b & c"), "(a < (b & c))");
  EXPECT_EQ(tree("x & 1 == 0"), "((x & 1) == 0)");
}

TEST(Precedence, LogicLiesBelowComparisons) {
  EXPECT_EQ(tree("a < b && c < d || e"), "(((a < b) && (c < d)) || e)");
  EXPECT_EQ(tree("a || b && c"), "(a || (b && c))");
  EXPECT_EQ(tree("!a && b"), "((!a) && b)");
  EXPECT_EQ(tree("a & b && c | d"), "((a & b) && (c | d))");
}

TEST(Precedence, AFlexAttentionBodyMeansTheSame) {
  EXPECT_EQ(tree("(q_idx >= kv_idx) & (q_idx - kv_idx < w)"),
            "((q_idx >= kv_idx) & ((q_idx - kv_idx) < w))");
  EXPECT_EQ(tree("(a == b) | ~(c != d)"), "((a == b) | (~(c != d)))");
}

TEST(Comparisons, Chain) {
  EXPECT_EQ(tree("lo <= kv_idx < hi"), "(lo <= kv_idx < hi)");
  EXPECT_EQ(tree("(lo <= kv_idx) < hi"), "((lo <= kv_idx) < hi)");
}

TEST(Operands, OfEveryKind) {
  EXPECT_EQ(tree("offs[doc[b, q_idx]] + where(a, .5, 0x10) > True"),
            "((offs[doc[b, q_idx]] + where(a, .5, 0x10)) > true)");
  EXPECT_EQ(tree("f()"), "f()");
}

TEST(Names, MayBeClauseWords) {
  const Parsed parsed = parse_text(
      "attention mask(scale = 1) { tensor lengths: i32[B]; let sink = lengths[b]; "
      "mask kv_idx < sink * scale; }");
  EXPECT_TRUE(parsed.spec) << parsed.text;
}

TEST(Spans, CoverWhatWasWritten) {
  const std::string text = "attention f { mask (a + b) < c[d]; }";
  const Parsed parsed = parse_text(text);
  ASSERT_TRUE(parsed.spec);
  const auto written = [&](Span span) { return text.substr(span.begin, span.end - span.begin); };
  const Expr& mask = mask_of(parsed);
  EXPECT_EQ(written(parsed.spec->span), text);
  EXPECT_EQ(written(parsed.spec->clauses[0].span), "mask (a + b) < c[d];");
  EXPECT_EQ(written(parsed.spec->clauses[0].keyword.span), "mask");
  EXPECT_EQ(written(mask.span), "(a + b) < c[d]");
  EXPECT_EQ(written(mask.head), "<");
  EXPECT_EQ(written(mask.operands[0].span), "(a + b)");
  EXPECT_EQ(written(mask.operands[0].head), "+");
  EXPECT_EQ(written(mask.operands[1].span), "c[d]");
  EXPECT_EQ(written(mask.operands[1].head), "c");
}

TEST(Spans, AreBytesAlsoAfterOtherText) {
  const std::string text = "\xEF\xBB\xBF# \xE2\x89\xA5 \xFF\nattention f { }";
  const Parsed parsed = parse_text(text);
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(parsed.spec->name.span.begin, text.find("f {"));
  EXPECT_EQ(parsed.spec->name.span.end, text.find(" {"));
}

TEST(Clauses, AreReadAsWritten) {
  const Parsed parsed = parse_text(R"(attention f(w = 4, c) {
    dims B = 2, Sq, Skv = Sq * 2;  dtype f16;
    layout q: bshd, k: strides(1, 2, 3, 4);
    tensor t: f32[B, Hq];  param p: i32;  let x = 1;  scale 2;  score score;
    outputs o, lse;  align bottom_right;  grad q, k;
  })");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_dsl(*parsed.spec),
            "attention f(w = 4, c) {\n"
            "  dims    B = 2, Sq, Skv = Sq * 2;\n"
            "  dtype   f16;\n"
            "  layout  q: bshd, k: strides(1, 2, 3, 4);\n"
            "  tensor  t: f32[B, Hq];\n"
            "  param   p: i32;\n"
            "  let     x = 1;\n"
            "  scale   2;\n"
            "  score   score;\n"
            "  outputs o, lse;\n"
            "  align   bottom_right;\n"
            "  grad    q, k;\n"
            "}\n");
}

// What bodies of FlexAttention mods have beside expressions.
TEST(PythonBodies, MayHaveAnnotationsDocstringsAndContinuedLines) {
  const Parsed parsed = parse_text(R"(attention f {
  # the mod
  fn mod(b: int, h: Optional[torch.Tensor], q_idx, kv_idx: int) -> torch.Tensor {
    """Causal, in a window.

    Of 64 # keys.
    """
    near = q_idx - kv_idx < \
        64
    return near & (q_idx >= kv_idx)
  }
})");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_dsl(*parsed.spec),
            "attention f {\n"
            "  # the mod\n"
            "  # Causal, in a window.\n"
            "  #\n"
            "  # Of 64 # keys.\n"
            "  fn mod(b, h, q_idx, kv_idx) {\n"
            "    near = q_idx - kv_idx < 64;\n"
            "    return near & (q_idx >= kv_idx);\n"
            "  }\n"
            "}\n");
}

TEST(PythonBodies, MayHaveADocstringOfAnyQuotes) {
  for (const char* docstring :
       {"\"one\"", "\"\"\"one\"\"\"", "'''one'''", "\"\"\"\n\n  one\r\n\"\"\""}) {
    const Parsed parsed =
        parse_text("attention f { fn m() { " + std::string(docstring) + " return 1 } }");
    ASSERT_TRUE(parsed.spec) << parsed.text;
    EXPECT_EQ(parsed.spec->clauses[0].comments.above, CommentLines{"# one"}) << docstring;
  }
  EXPECT_TRUE(parse_text("attention f { fn m() { \"\"\"\"\"\" return 1 } }").spec);
  EXPECT_FALSE(parse_text("attention f { fn m() { return 1 \"\"\"one\"\"\" } }").spec);
}

TEST(PythonBodies, IndexOneDimensionAfterTheOther) {
  EXPECT_EQ(tree("bias[h][q_idx][kv_idx]"), "bias[h, q_idx, kv_idx]");
  EXPECT_EQ(tree("offs[doc[b][q_idx]] > t[b, 1][2]"), "(offs[doc[b, q_idx]] > t[b, 1, 2])");
}

TEST(Defaults, AreExpressionsOrLists) {
  const Parsed parsed = parse_text(
      "attention f { tensor t: i32[2, 2] = [[1, -B], [3 + 1, 4]]; lengths q = [1, 2], kv = i0; }");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_dsl(*parsed.spec),
            "attention f {\n"
            "  tensor  t: i32[2, 2] = [[1, -B], [3 + 1, 4]];\n"
            "  lengths q = [1, 2], kv = i0;\n"
            "}\n");
  const Parsed json = parse_text(to_json(*parsed.spec), "x.attn.json");
  ASSERT_TRUE(json.spec) << json.text;
  EXPECT_EQ(to_dsl(*json.spec), to_dsl(*parsed.spec));
}

TEST(SyntaxErrors, OfOneFunctionAreOne) {
  for (const char* function :
       {"fn g(b h) {\n score = score / 50\n return score\n }", "fn g(*a) = 1;",
        "fn g(b) {\n if b > 0:\n mask = 3\n return mask\n }", "fn g(b) { x, y = 1, 2 return x }"}) {
    const Parsed parsed =
        parse_text("attention f {\n" + std::string(function) + "\n mask b <;\n }");
    EXPECT_EQ(parsed.diagnostics.size(), 2U) << parsed.text;
    const Parsed library = parse_text(std::string(function) + "\nattention f { mask b <; }");
    EXPECT_EQ(library.diagnostics.size(), 2U) << library.text;
  }
}

TEST(SyntaxErrors, AreReportedOnePerClause) {
  const Parsed parsed = parse_text(R"(attention f {
    dims B = ;
    mask (a < b;
    score score +;
    mask a b c d;
  })");
  EXPECT_FALSE(parsed.spec);
  ASSERT_EQ(parsed.diagnostics.size(), 4U) << parsed.text;
  EXPECT_EQ(parsed.diagnostics[1].code, Code::unclosed_bracket);
}

TEST(SyntaxErrors, HaveABoundedNumber) {
  std::string text = "attention f {";
  for (int i = 0; i < 1000; ++i) text += " mask < ;";
  EXPECT_EQ(parse_text(text + "}").diagnostics.size(), kMaxSyntaxErrors);
}

TEST(SyntaxErrors, AtTheTop) {
  EXPECT_NE(parse_text("").text.find("found the end of the file"), std::string::npos);
  EXPECT_NE(parse_text("attention { }").text.find("expected a name, found `{`"), std::string::npos);
  EXPECT_NE(parse_text("attention f {").text.find("the end of the file"), std::string::npos);
  EXPECT_NE(parse_text("attention f(w = ) { }").text.find("expected an expression"),
            std::string::npos);
  EXPECT_EQ(parse_text("attention f(w = ) { mask < ; }").diagnostics.size(), 2U);
  EXPECT_NE(parse_text("fn causal() = q_idx >= kv_idx; attention f { }").spec, std::nullopt);
}

TEST(SyntaxErrors, AListOfLayoutsNeedsTensors) {
  const Parsed parsed = parse_text("attention f { layout bshd, q: bhsd; }");
  EXPECT_FALSE(parsed.spec);
  EXPECT_NE(parsed.text.find("every layout in a list needs a tensor"), std::string::npos);
}

}  // namespace
}  // namespace attn::ast
