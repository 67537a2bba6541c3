// Random expressions over edge-case numbers, identical in the program that writes their kernels and
// in the test that runs them.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/codegen/check.h"
#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/ir/random_attention.h"

namespace attn::codegen::testing {

inline constexpr unsigned kCases = 120;
inline constexpr unsigned kCheckSeeds = 3500;  // some of these have a check
inline constexpr std::int64_t kColumns = 10;

struct Case {
  ir::Attention attention;
  std::vector<rewrite::DerivedTensor> outputs;  // one to three, over all of B, Hq, Sq, Skv
};

inline bool depends_on_score(const ir::Dag& dag, ir::ExprId id) {
  const ir::ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(dag, roots),
                             [&](ir::ExprId node) { return dag[node].is(ir::Op::score_); });
}

// The last expressions, up to three, that do not depend on the score.
inline Case random_case(unsigned seed) {
  Case made{ir::testing::RandomAttention(seed, kColumns).make(), {}};
  const ir::Dag& dag = made.attention.dag;
  for (auto id = static_cast<ir::ExprId>(dag.size()); id-- > 0 && made.outputs.size() < 3;) {
    if (dag[id].type == ir::Type::wide) continue;  // outputs here have 32 bits
    if (dag[id].operands.empty() || depends_on_score(dag, id)) continue;
    rewrite::DerivedTensor output;
    output.name = "out_" + std::to_string(made.outputs.size());
    output.expression = id;
    output.dtype = dag[id].type == ir::Type::real ? DType::f32 : DType::i32;
    output.axes = {true, true, true, true};
    output.dims = {2, 4, 6, kColumns};
    made.outputs.push_back(std::move(output));
  }
  return made;
}

// An attention, what is hoisted from it, and its check if there is one.
struct CheckCase {
  ir::Attention attention;
  std::optional<plan::IndexCheck> check;
};

inline CheckCase random_check(unsigned seed) {
  CheckCase made{rewrite::simplify(ir::testing::RandomAttention(seed, kColumns).make()), {}};
  rewrite::HoistOptions options;
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return engines::captured_view(of, load).status();
  };
  const rewrite::Hoisted hoisted = rewrite::hoist(made.attention, options, {}).value();
  if (!hoisted.derived.empty()) made.check = index_check(made.attention, hoisted);
  return made;
}

}  // namespace attn::codegen::testing
