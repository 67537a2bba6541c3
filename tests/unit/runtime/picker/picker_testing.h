// Plans of many sizes that cannot be executed.
#pragma once

#include <utility>
#include <vector>

#include "runtime/plan/bundle.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::picker::testing {

using plan::Dim;
using plan::Sizes;

inline plan::Shape shape_of(std::int64_t batches, std::int64_t rows, std::int64_t keys,
                            std::vector<Dim> padded = {Dim::B, Dim::Sq, Dim::Skv}) {
  return {{{Dim::B, batches},
           {Dim::Hq, 4},
           {Dim::Hkv, 2},
           {Dim::Sq, rows},
           {Dim::Skv, keys},
           {Dim::Dqk, 8},
           {Dim::Dv, 8}},
          std::move(padded)};
}

inline Sizes sizes(std::int64_t batches, std::int64_t rows, std::int64_t keys) {
  return {{Dim::B, batches}, {Dim::Sq, rows}, {Dim::Skv, keys}};
}

inline plan::Plan plan_of(plan::Shape shape, bool backward = false) {
  plan::Plan plan = backward ? plan::testing::backward_plan() : plan::testing::sample_plan();
  plan.bindings = {{"cap", "30"}};
  for (const Dim dim : {Dim::B, Dim::Sq, Dim::Skv}) {
    plan.bindings[std::string(to_string(dim))] = std::to_string(shape.sizes[dim]);
  }
  plan.shape = std::move(shape);
  return plan;
}

}  // namespace attn::picker::testing
