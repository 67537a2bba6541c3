// Any input gets an answer: fixed seeds, the whole front end, no crash.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "compiler/ast/comments.h"
#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/sema/analyze.h"
#include "compiler/sema/other_clauses.h"

namespace attn {
namespace {

// What is printed is the same tree.
void print(const ast::Spec& spec, const support::Source& source) {
  diag::Sink sink(source);
  if (!sema::has_only_known_clauses(spec, sink)) return;  // the tree has lost what they said
  const std::string dsl = ast::to_dsl(spec);
  for (const support::Source& printed :
       {support::Source("x.attn", dsl), support::Source("x.attn.json", ast::to_json(spec))}) {
    if (printed.is_json() && ast::first_not_utf8(source.text())) continue;
    diag::Sink again(printed);
    const auto read = ast::parse(printed, again);
    ASSERT_TRUE(read) << source.text() << dsl << diag::to_text(again);
    EXPECT_EQ(ast::to_dsl(*read), dsl) << source.text();
  }
}

// True when the text means something; then it also verifies.
bool answer(const std::string& text, const std::string& name) {
  const support::Source source(name, text);
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  EXPECT_EQ(!spec, sink.has_errors()) << text;
  if (spec) {
    print(*spec, source);
    const auto attention = sema::analyze(*spec, {}, sink);
    EXPECT_EQ(!attention, sink.has_errors()) << text;
    if (attention) {
      const Status status = ir::verify(*attention);
      EXPECT_TRUE(status.ok()) << text << "\n" << (status.ok() ? "" : status.error().message);
    }
  }
  EXPECT_EQ(diag::to_text(sink).empty(), diag::to_json(sink).find("\"code\"") == std::string::npos);
  return spec && !sink.has_errors();
}

TEST(Robustness, RawBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 200, '\0');
    for (char& c : text) c = static_cast<char>(random());
    answer(text, round % 2 == 0 ? "x.attn" : "x.json");
  }
}

TEST(Robustness, DamagedSpecs) {
  const std::string dsl =
      "# top\nattention f(w = 3) {  # header\n\n  # above\n  dims B = 2, Hq = 4, Sq = 8, D = 16;\n "
      " tensor t: i32[B, Skv];\n"
      "  let x = abs(q_idx - kv_idx);\n  score where(x < w, score, -inf) * 2 ** x;  # beside\n"
      "  mask (t[b, q_idx] == 1) | (x > 3);\n}\n";
  const support::Source source("x.attn", dsl);
  diag::Sink sink(source);
  const std::string json = ast::to_json(*ast::parse(source, sink));
  std::mt19937 random(2);
  int good = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool as_json = round % 2 == 1;
    std::string text = as_json ? json : dsl;
    for (unsigned i = 0; i < 1 + random() % 2; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1:
          if (const auto digit = text.find_first_of("0123456789", at); digit != text.npos) {
            text[digit] = static_cast<char>('0' + random() % 10);
          }
          break;
        case 2: text.erase(at, 1 + random() % 5); break;
        default: text.insert(at, text.substr(random() % text.size(), 1 + random() % 8)); break;
      }
    }
    good += answer(text, as_json ? "x.json" : "x.attn") ? 1 : 0;
  }
  EXPECT_GT(good, 300);  // the damage is not always fatal, so meaning was tried too
}

// Words that can stand side by side often enough to reach the semantic checks.
TEST(Robustness, TokenSoup) {
  static constexpr std::array kExpression = {
      "score", "q_idx", "kv_idx", "b",  "h",      "t[b]", "t[", "]",  "(",  ")",     "+",
      "-",     "*",     "/",      "//", "%",      "**",   "<",  "<=", "==", "&&",    "||",
      "!",     "~",     "&",      "|",  "^",      "<<",   ">>", "1",  "0",  "0.5",   "inf",
      "true",  "x",     "tanh(",  ",",  "where(", "min(", "Sq", "w",  "p",  "1e400", "99999999999"};
  static constexpr std::array kWords = {"score", "mask", "scale", "let y =", "let x ="};
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    std::string text = "attention f(w = 3) { tensor t: i32[B]; param p: f32; ";
    for (unsigned clause = 0; clause < 1 + random() % 3; ++clause) {
      text += kWords[random() % kWords.size()];
      const unsigned count = 1 + static_cast<unsigned>(random() % 9);
      for (unsigned i = 0; i < count; ++i) {
        text += ' ';
        text += kExpression[random() % kExpression.size()];
      }
      text += "; ";
    }
    answer(text + "}", "x.attn");
  }
}

std::string with_score(const std::string& expression) {
  return "attention f { score " + expression + "; }";
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Robustness, DeepNestingIsAnError) {
  EXPECT_FALSE(
      answer(with_score(repeated("(", 100'000) + "score" + repeated(")", 100'000)), "x.attn"));
  EXPECT_FALSE(answer(with_score(repeated("(", 100'000)), "x.attn"));
  EXPECT_FALSE(answer(with_score(repeated("- ", 40'000) + "score"), "x.attn"));
  EXPECT_FALSE(answer(with_score(repeated("2 ** ", 20'000) + "score"), "x.attn"));
  EXPECT_FALSE(answer(with_score("score" + repeated(" + 1", 20'000)), "x.attn"));
  EXPECT_FALSE(answer(with_score(repeated("t[", 100'000)), "x.attn"));
  EXPECT_FALSE(answer(repeated("attention f {", 100'000), "x.attn"));
  EXPECT_FALSE(answer(repeated("{\"attention\":", 100'000), "x.json"));
  EXPECT_FALSE(answer("attention f { grad " + repeated("{", 100'000) + "}", "x.attn"));
}

TEST(Robustness, DepthWithinTheLimitsIsFine) {
  EXPECT_TRUE(answer(with_score(repeated("(", 99) + "score" + repeated(")", 99)), "x.attn"));
  EXPECT_TRUE(answer(with_score("score" + repeated(" + 1", 400)), "x.attn"));
  EXPECT_TRUE(answer(with_score(repeated("- ", 400) + "score"), "x.attn"));
}

TEST(Robustness, ScoresAndLetsThatGrowAreBounded) {
  EXPECT_FALSE(answer("attention f {" + repeated(" score score * score;", 64) + "}", "x.attn"));
  EXPECT_FALSE(answer("attention f {" + repeated(" score tanh(score);", 5'000) + "}", "x.attn"));
  EXPECT_TRUE(answer("attention f {" + repeated(" score tanh(score);", 500) + "}", "x.attn"));
}

TEST(Robustness, LargeFilesAreRefused) {
  EXPECT_FALSE(answer(std::string(10'000'000, 'x'), "x.attn"));
  EXPECT_FALSE(answer(std::string(10'000'000, '['), "x.json"));
  EXPECT_FALSE(answer(with_score(repeated("1 ", 500'000)), "x.attn"));
  EXPECT_TRUE(answer("attention f { }" + std::string(1'000'000, ' '), "x.attn"));
}

}  // namespace
}  // namespace attn
