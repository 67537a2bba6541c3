#include "tools/lsp/index.h"

#include <gtest/gtest.h>

#include "tools/lsp/analysis.h"

namespace attn::tools::lsp {
namespace {

// What the name at the n-th occurrence of `word` means: "MEANING LINE" of its definition.
std::string meaning(const Analysis& analysis, std::string_view word, int n = 1) {
  const std::string_view text = analysis.source->text();
  std::size_t at = text.find(word);
  while (--n > 0) at = text.find(word, at + 1);
  const Use* use = analysis.index.at(static_cast<std::uint32_t>(at));
  if (!use) return "none";
  const Symbol& symbol = analysis.index.symbol(*use);
  if (!symbol.definition) return "word";
  const auto [source, local] = analysis.locate(*symbol.definition);
  const std::string file = source == analysis.source.get() ? "" : source->name() + ":";
  return file + std::to_string(source->place(local.begin).line);
}

std::size_t uses(const Analysis& analysis, std::string_view name) {
  for (std::size_t i = 0; i < analysis.index.symbols().size(); ++i) {
    const Symbol& symbol = analysis.index.symbols()[i];
    if (symbol.name == name && symbol.definition) return analysis.index.uses_of(i).size();
  }
  return 0;
}

constexpr const char* kSpec = R"(import "masks.attn";
fn near(b, w) = kv_idx + w < b;
attention f(w = 4) {
  dims    B = 2, Hq = 4, Sq = 16 * w, D = 64;
  learn   t: f32[Hq];
  tensor  doc: i32[B, Skv];
  let     x = any(w in 0..3: w == kv_idx);
  fn inner(y) { z = y + w; return z < Dqk }
  score   score + t[h];
  mask    near(q_idx, w) && causal() && x && inner(doc[b, kv_idx]) && window(w);
  grad    q, t;
}
)";

TEST(Index, FindsDefinitionsInScope) {
  const auto analysis = analyze({"f.attn", kSpec});
  EXPECT_TRUE(analysis->is_complete);
  EXPECT_EQ(meaning(*analysis, "w < b"), "2");      // the function's parameter, not the spec's
  EXPECT_EQ(meaning(*analysis, "b;"), "2");         // hides the batch index
  EXPECT_EQ(meaning(*analysis, "w, D"), "3");       // of the spec
  EXPECT_EQ(meaning(*analysis, "w == kv"), "7");    // the reduction's variable
  EXPECT_EQ(meaning(*analysis, "w; return"), "3");  // seen inside
  EXPECT_EQ(meaning(*analysis, "z < Dqk"), "8");    // a value of the body
  EXPECT_EQ(meaning(*analysis, "Dqk"), "4");        // the entry D
  EXPECT_EQ(meaning(*analysis, "t;"), "5");         // in `grad`
  EXPECT_EQ(meaning(*analysis, "near", 2), "2");
  EXPECT_EQ(meaning(*analysis, "q_idx"), "word");
  EXPECT_EQ(meaning(*analysis, "causal").substr(0, 15), "std:masks.attn:");
  EXPECT_EQ(uses(*analysis, "t"), 3U);
}

TEST(Index, WorksInJson) {
  const auto analysis = analyze({"f.attn.json", R"({"attention": "f", "clauses": [
    {"dims": {"B": 1, "Hq": 1, "Sq": 8, "D": 8}},
    {"tensor": "n", "dtype": "i32", "shape": ["B"]},
    {"mask": {"op": "<", "args": ["kv_idx", {"index": "n", "args": ["b"]}]}}]})"});
  ASSERT_TRUE(analysis->spec.has_value());
  EXPECT_EQ(uses(*analysis, "n"), 2U);
}

TEST(Index, BrokenClausesDoNotHideTheOthers) {
  const auto analysis = analyze({"f.attn", R"(attention f(w = 4) {
  dims    B = 2, Hq = 4, Sq = 16, D = 64;
  tensor  doc: i32[B, Skv];
  mask    doc[b, kv_idx] == ;
  let     x = ;
  mask    doc[b, q_idx] > w;
}
)"});
  EXPECT_FALSE(analysis->is_complete);
  ASSERT_TRUE(analysis->spec.has_value());
  EXPECT_EQ(analysis->spec->name.text, "f");
  EXPECT_EQ(meaning(*analysis, "w;"), "1");
  EXPECT_EQ(uses(*analysis, "doc"), 2U);
  EXPECT_EQ(to_string(diag::Severity::error), "error");
  EXPECT_TRUE(analysis->found->has_errors());
}

TEST(Index, AnyPrefixOfASpecIsIndexed) {
  const std::string text = kSpec;
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto analysis = analyze({"f.attn", text.substr(0, size)});
    for (const Use& use : analysis->index.uses()) EXPECT_LT(use.span.begin, use.span.end);
  }
}

}  // namespace
}  // namespace attn::tools::lsp
