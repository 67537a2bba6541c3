// Chooses which of several shapes serves given sizes.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "runtime/base/status.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/shape.h"

namespace attn::picker {

// Whether a plan of this shape serves the wanted sizes by masking with lengths: B, Sq and Skv are
// all given, and each wanted size equals the plan's or is smaller in a dimension that the plan
// pads. False for the plan's exact sizes, which need no masking.
bool contains(const plan::Shape& shape, const plan::Sizes& wanted);

struct Choice {
  std::size_t index = 0;  // index into the shapes
  bool exact = false;     // false: a bucket, which contains the sizes
};

// The shape with exactly the wanted sizes; else, with `buckets`, the one of least work that
// contains them (B * Sq * Skv; the first of equal ones); else nullopt. Sizes that are not wanted
// come from the plan. Errors: invalid_argument if a size would have to be guessed, because the
// matching shapes differ in a dimension without a wanted size.
Result<std::optional<Choice>> choose(std::span<const plan::Shape> shapes, const plan::Sizes& wanted,
                                     bool buckets);

// The plans of one shape, by their places in a bundle: one direction, or both.
struct ChosenPlans {
  std::optional<std::size_t> forward{};
  std::optional<std::size_t> backward{};
};

// The plans of exactly the wanted sizes among those that `serves` accepts, the first of each
// direction; none if there are none. Errors: those of choose.
Result<ChosenPlans> choose_plans(const plan::Bundle& bundle, const plan::Sizes& wanted,
                                 const std::function<bool(const plan::Plan&)>& serves);

// The error plan_shape for sizes that nothing serves, with the available shapes and hints.
Error no_plan_for(std::span<const plan::Shape> shapes, const plan::Sizes& wanted);

}  // namespace attn::picker
