#include "compiler/codegen/repetition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/codegen/expression_writer.h"
#include "tests/unit/compiler/codegen/example.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::HasSubstr;
using ::testing::Not;

// Sums of terms of the example's tensors, added in pairs, as the language adds them.
class Sums {
 public:
  ExprId element(const char* tensor, std::int64_t index) {
    return example_.load(tensor, {dag().integer(index)});
  }

  // single[i] * cos(single[i + 1]) for each i below `count`.
  std::vector<ExprId> terms(std::int64_t count) {
    std::vector<ExprId> all;
    for (std::int64_t i = 0; i < count; ++i) {
      const ExprId angle = dag().add(Op::cos_, {element("single", i + 1)});
      all.push_back(dag().add(Op::mul_, {element("single", i), angle}));
    }
    return all;
  }

  ExprId sum(std::vector<ExprId> level, Op op = Op::add_) {
    while (level.size() > 1) {
      std::vector<ExprId> next;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2)
        next.push_back(dag().add(op, {level[i], level[i + 1]}));
      if (level.size() % 2 == 1) next.push_back(level.back());
      level = std::move(next);
    }
    return level[0];
  }

  std::string text(ExprId id) {
    ExpressionWriter writer(example_.attention);
    writer.begin({.row = true, .column = true});
    const std::string value = writer.value(id);
    return writer.statements(0) + value;
  }

  ir::Dag& dag() { return example_.attention.dag; }

 private:
  testing::Example example_;
};

std::ptrdiff_t lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

TEST(Repetition, ManyTermsAreALoop) {
  Sums sums;
  const std::string text = sums.text(sums.sum(sums.terms(40)));
  EXPECT_THAT(text, HasSubstr("< 40; ++"));
  EXPECT_THAT(text, HasSubstr("(1 + j"));
  EXPECT_EQ(lines_of(text), lines_of(sums.text(sums.sum(sums.terms(90)))));
}

TEST(Repetition, FewTermsAreWrittenOneAfterTheOther) {
  Sums sums;
  EXPECT_THAT(sums.text(sums.sum(sums.terms(7))), Not(HasSubstr("for (")));
}

TEST(Repetition, TermsOfOtherShapesStandBeside) {
  Sums sums;
  std::vector<ExprId> terms = sums.terms(20);
  terms.insert(terms.begin() + 3, sums.dag().add(Op::exp_, {sums.element("single", 4)}));
  const std::string text = sums.text(sums.sum(terms));
  EXPECT_THAT(text, HasSubstr("< 20; ++"));
  EXPECT_THAT(text, HasSubstr("exp("));
}

TEST(Repetition, NumbersThatGrowUnevenlyAreATable) {
  Sums sums;
  std::vector<ExprId> terms;
  for (std::int64_t i = 0; i < 16; ++i)
    terms.push_back(sums.dag().add(Op::cos_, {sums.element("single", i * i % 90)}));
  for (ExprId& term : terms) term = sums.dag().add(Op::mul_, {term, term});
  for (ExprId& term : terms) term = sums.dag().add(Op::exp_, {term});
  EXPECT_THAT(sums.text(sums.sum(terms)), HasSubstr("static constexpr int k"));
}

TEST(Repetition, LoopsAreInLoops) {
  Sums sums;
  std::vector<ExprId> outer;
  for (std::int64_t i = 0; i < 9; ++i) {
    std::vector<ExprId> inner;
    for (std::int64_t j = 0; j < 20; ++j) {
      const ExprId x = sums.element("single", 8 * i + j);
      inner.push_back(sums.dag().add(Op::cos_, {sums.dag().add(Op::mul_, {x, x})}));
    }
    outer.push_back(sums.dag().add(Op::exp_, {sums.sum(inner, Op::max_)}));
  }
  const std::string text = sums.text(sums.sum(outer));
  EXPECT_THAT(text, HasSubstr("< 9; ++"));
  EXPECT_THAT(text, HasSubstr("< 20; ++"));
  EXPECT_LT(lines_of(text), 25);
}

TEST(Repetition, AConditionThatIsDecidedEndsItsLoop) {
  Sums sums;
  std::vector<ExprId> terms;
  for (std::int64_t i = 0; i < 30; ++i)
    terms.push_back(
        sums.dag().add(Op::eq_, {sums.element("word", i), sums.dag().leaf(Op::column_)}));
  EXPECT_THAT(sums.text(sums.sum(terms, Op::or_)), HasSubstr(" && !v"));
}

}  // namespace
}  // namespace attn::codegen
