#include "compiler/ast/lexemes.h"

#include <gtest/gtest.h>

namespace attn::ast {
namespace {

std::string marked(const support::Source& source) {
  constexpr char kLetters[] = {'k', 'n', 'f', '#', 's', 'c', '.'};
  std::string text(source.text().size(), ' ');
  for (const Lexeme& lexeme : lexemes(source)) {
    for (std::uint32_t i = lexeme.span.begin; i < lexeme.span.end; ++i) {
      text[i] = kLetters[static_cast<std::size_t>(lexeme.kind)];
    }
  }
  return text;
}

TEST(Lexemes, Dsl) {
  EXPECT_EQ(marked({"x.attn", "import \"a.attn\"; # of \xC3\xA4"}), "kkkkkk ssssssss. ccccccc");
  EXPECT_EQ(marked({"x.attn", "attention score(w = 4) { scale 1 / sqrt(D); score 2.5 * score; }"}),
            "kkkkkkkkk fffff.n . #. . kkkkk # . ffff.n.. kkkkk ### . nnnnn. .");
}

TEST(Lexemes, TextWithErrors) {
  EXPECT_EQ(marked({"x.attn", "mask 3x ? (;"}), "kkkk .. . ..");
  EXPECT_EQ(marked({"x.attn", ""}), "");
}

TEST(Lexemes, Json) {
  EXPECT_EQ(marked({"x.attn.json", "{\"a\": [\"b\\\"\", -1.5e3, true]}"}),
            ".kkk. .sssss. ######. ####..");
  EXPECT_EQ(marked({"x.attn.json", "{\"a"}), ".ss");
}

}  // namespace
}  // namespace attn::ast
