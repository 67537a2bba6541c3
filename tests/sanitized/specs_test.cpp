// What the compiler does with every shipped spec, without cuDNN: reads, prints, checks, lowers, and
// evaluates it by the reference. Built with sanitizers alone, which report here, leaks included.
#include "tests/golden/lowering/specs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/driver/support.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/reference/gradients.h"
#include "runtime/targets/targets.h"
#include "tools/inputs.h"

namespace attn::testing {
namespace {

using Limits = std::map<std::string, std::int64_t, std::less<>>;

// Sizes that the reference evaluates, and whose masks are analyzed, in a moment.
const Limits kEvaluated = {{"B", 1}, {"Sq", 40}, {"Skv", 130}};
const Limits kAnalyzed = {{"Sq", 500}, {"Skv", 1000}};

std::vector<std::filesystem::path> all_specs() {
  std::vector<std::filesystem::path> paths = spec_files("specs");
  for (const auto& path : spec_files("bench/variants")) paths.push_back(path);
  return paths;
}

ast::Spec parsed(const support::Source& source) {
  diag::Sink sink(source);
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  EXPECT_TRUE(spec) << diag::to_text(sink);
  return std::move(*spec);
}

bool is_too_large(const ast::DimEntry& entry, const ir::Attention& attention,
                  const Limits& limits) {
  const auto limit = limits.find(entry.name.text);
  if (limit == limits.end() || (entry.size && entry.size->text == "Sq")) return false;
  const auto size = attention.dims.get(*ir::parse_dim(entry.name.text));
  return !size || *size > limit->second;
}

// Bindings for the dimensions of the spec that are open or larger than a limit. `Skv = Sq` is kept.
sema::Bindings small(const ast::Spec& spec, const ir::Attention& attention, const Limits& limits) {
  sema::Bindings bindings;
  for (const ast::Clause& clause : spec.clauses) {
    const auto* dims = std::get_if<ast::DimsClause>(&clause.body);
    if (dims == nullptr) continue;
    for (const ast::DimEntry& entry : dims->entries) {
      if (!is_too_large(entry, attention, limits)) continue;
      bindings[entry.name.text] = std::to_string(limits.at(entry.name.text));
    }
  }
  return bindings;
}

class Sanitized : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  // The attention with sizes up to the limits, or those of the spec if it refuses such sizes.
  ir::Attention analyzed(const Limits& limits) const {
    diag::Sink sink(source_);
    const ir::Attention full = driver::front_end(source_, {}, sink).value();
    return driver::front_end(source_, small(parsed(source_), full, limits), sink).value_or(full);
  }

  support::Source source_ = support::Source::read(GetParam().string()).value();
};

TEST_P(Sanitized, IsPrintedAndReadAgain) {
  const std::string text = ast::to_dsl(parsed(source_));
  const support::Source json("spec.attn.json", ast::to_json(parsed(source_)));
  EXPECT_EQ(ast::to_dsl(parsed(json)), text);
}

void expect_judged(const ir::Attention& attention, const driver::CompileOptions& options) {
  const driver::Verdict verdict = driver::judge_by_rules(attention, options);
  EXPECT_NE(verdict.outcome, driver::Verdict::Outcome::failed) << verdict.error->to_text();
}

TEST_P(Sanitized, IsJudgedByRules) {
  const ir::Attention attention = analyzed(kAnalyzed);
  driver::CompileOptions options;
  options.target = targets::find_target("h200").value();
  expect_judged(attention, options);
  options.paired = true;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    options.direction = direction;
    expect_judged(driver::training_forward(attention), options);
  }
}

TEST_P(Sanitized, IsEvaluated) {
  const ir::Attention attention = analyzed(kEvaluated);
  // 8-bit attention has gradients only with a `grad` clause.
  const bool forward_only = attention.cache || (attention.quantize && attention.gradients.empty());
  const auto inputs =
      tools::make_inputs(attention, {}, tools::Missing::pattern,
                         forward_only ? tools::Needs::forward : tools::Needs::gradients);
  ASSERT_TRUE(inputs.ok()) << inputs.error().to_text();
  reference::Inputs values = inputs->values;
  if (forward_only) {
    const auto outputs = reference::evaluate(attention, values, {});
    ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
    return;
  }
  const auto cotangent = values.tensors.extract(tools::kCotangent);
  const auto of_lse = values.tensors.extract(tools::kCotangentOfLse);
  reference::Options options;
  if (!of_lse.empty()) options.d_lse = &of_lse.mapped();
  const auto gradients = reference::gradients(attention, values, cotangent.mapped(),
                                              gradient::wanted_gradients(attention), options);
  ASSERT_TRUE(gradients.ok()) << gradients.error().to_text();
}

INSTANTIATE_TEST_SUITE_P(Specs, Sanitized, ::testing::ValuesIn(all_specs()), [](const auto& spec) {
  return spec.param.parent_path().filename().string() + "_" + spec.param.stem().string();
});

}  // namespace
}  // namespace attn::testing
