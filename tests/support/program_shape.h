// The sizes of a program that was not compiled of a spec.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "runtime/plan/plan.h"

namespace attn::testing {

// Those of q, k and v, and 1 where there is none of them.
inline plan::Shape shape_of(const plan::Program& program) {
  using plan::Dim;
  plan::Shape shape;
  for (const Dim dim : plan::kDims) shape.sizes.set(dim, 1);
  const auto take = [&](plan::TensorRole role, std::initializer_list<Dim> dims) {
    const auto found = std::ranges::find(program.tensors, role, &plan::TensorInfo::role);
    if (found == program.tensors.end()) return;
    for (std::size_t axis = 0; const Dim dim : dims) shape.sizes.set(dim, found->dims[axis++]);
  };
  take(plan::TensorRole::key, {Dim::B, Dim::Hkv, Dim::Skv});
  take(plan::TensorRole::value, {Dim::B, Dim::Hkv, Dim::Skv, Dim::Dv});
  take(plan::TensorRole::query, {Dim::B, Dim::Hq, Dim::Sq, Dim::Dqk});
  return shape;
}

}  // namespace attn::testing
