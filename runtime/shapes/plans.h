// The plans that a picker has, by their shapes, and what it asks a builder for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/bundle.h"
#include "runtime/shapes/builder.h"

namespace attn::shapes {

// Those of one shape: one direction, or both.
struct ShapePlans {
  plan::Shape shape;
  std::optional<plan::Plan> forward{};
  std::optional<plan::Plan> backward{};
};

// In the order in which their shapes occur. A training pair is padded where both are. Errors:
// invalid_argument when a plan does not say its sizes, a shape has two plans of one direction, or
// some shapes have a direction that others lack.
Result<std::vector<ShapePlans>> by_shape(plan::Bundle bundle);

// Whether a plan can be loaded on this machine: plan_device, plan_version when it cannot.
using Fits = std::function<Status(const plan::Plan& plan)>;

// Takes out the plans that do not fit, and says for each why. With one direction of a training pair
// goes the other: a shape has both or none.
std::vector<std::string> drop_unfit(plan::Bundle& bundle, const Fits& fits);

// The spec and bindings that the plans were made from, their sizes aside. Errors: invalid_argument
// when they are not the same for all.
Result<BuildRequest> origin_of(const plan::Bundle& bundle);

// That origin at these sizes; what is not wanted is left as it was bound, or to the spec.
BuildRequest request_for(BuildRequest origin, const plan::Sizes& wanted);

// What takes memory and is of no use once the plans are loaded.
void drop_kernels(ShapePlans& plans);

// Errors: invalid_argument when one has a direction that the other lacks.
Status same_directions(const ShapePlans& one, const ShapePlans& other);

// What a builder made at these sizes. Errors: plan_shape for plans of others.
Result<ShapePlans> built_plans(plan::Bundle bundle, const plan::Sizes& wanted);

}  // namespace attn::shapes
