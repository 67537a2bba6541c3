// Groups a picker's plans by shape, and prepares requests to builders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/picker/builder.h"
#include "runtime/plan/bundle.h"

namespace attn::picker {

// The plans of one shape: one direction, or both.
struct ShapePlans {
  plan::Shape shape;
  std::optional<plan::Plan> forward{};
  std::optional<plan::Plan> backward{};
};

// Groups plans by shape, in order of first occurrence. A training pair is padded where both plans
// are. Errors: invalid_argument if a plan has no sizes, a shape has two plans of one direction, or
// the shapes differ in their directions.
Result<std::vector<ShapePlans>> by_shape(plan::Bundle bundle);

// Leaves out plans for other devices where there is one for this device, or another such plan, of
// the same shape and direction: what is left for others does not fit. Errors, if `needs_one`: those
// of plan::plans_for_device.
Result<plan::Bundle> for_device(plan::Bundle bundle, std::int64_t sm, bool needs_one);

// Whether a plan can be loaded on this machine. Errors: plan_device, plan_version.
using Fits = std::function<Status(const plan::Plan& plan)>;

// Removes plans that do not fit, and returns the reason for each. Also removes the other direction
// of their training pairs: a shape keeps both or none.
std::vector<std::string> drop_unfit(plan::Bundle& bundle, const Fits& fits);

// The spec and bindings that the plans were compiled from, without their sizes. Errors:
// invalid_argument if they are not the same for all.
Result<BuildRequest> origin_of(const plan::Bundle& bundle);

// The origin with these sizes bound; other dimensions stay as bound, or as in the spec.
BuildRequest request_for(BuildRequest origin, const plan::Sizes& wanted);

// Drops what uses memory but is not needed once the plans are loaded.
void drop_kernels(ShapePlans& plans);

// Errors: invalid_argument if one has a direction that the other lacks.
Status same_directions(const ShapePlans& one, const ShapePlans& other);

// The plans that a builder returned for these sizes. Errors: plan_shape if they have other sizes.
Result<ShapePlans> built_plans(plan::Bundle bundle, const plan::Sizes& wanted);

}  // namespace attn::picker
