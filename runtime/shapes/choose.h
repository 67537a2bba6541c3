// Which of several shapes serves the sizes at hand.
#pragma once

#include <optional>
#include <span>

#include "runtime/base/status.h"
#include "runtime/plan/shape.h"

namespace attn::shapes {

// Whether a plan of this shape serves the wanted sizes by lengths: B, Sq and Skv are all wanted,
// and each wanted size is the plan's, or a smaller one of a dimension that the plan pads. The
// plan's own sizes are not contained: they are served as they are.
bool contains(const plan::Shape& shape, const plan::Sizes& wanted);

struct Choice {
  std::size_t index = 0;  // among the shapes
  bool exact = false;     // else a bucket: it contains the sizes
};

// The shape that has every wanted size; else, with `buckets`, of those that contain them the one
// with the least work (B * Sq * Skv; of equal ones the first); else nothing. What is not wanted is
// the plan's. Errors: invalid_argument when it would have to be guessed: the shapes that would do
// differ in a dimension that has no wanted size.
Result<std::optional<Choice>> choose(std::span<const plan::Shape> shapes, const plan::Sizes& wanted,
                                     bool buckets);

// That nothing serves the sizes: plan_shape, with the shapes that there are, and what would help.
Error no_plan_for(std::span<const plan::Shape> shapes, const plan::Sizes& wanted);

}  // namespace attn::shapes
