#include "runtime/picker/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/listing.h"

namespace attn::picker {
namespace {

using plan::Dim;
using plan::Plan;
using plan::Sizes;

Error unfit(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status add(ShapePlans& plans, Plan plan) {
  const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
  std::optional<Plan>& place = backward ? plans.backward : plans.forward;
  if (place) {
    return unfit(fmt::format("there are two {} plans for {}", backward ? "backward" : "forward",
                             plan::to_text(plans.shape.sizes)));
  }
  std::erase_if(plans.shape.padded, [&](Dim dim) {
    return std::ranges::find(plan.shape.padded, dim) == plan.shape.padded.end();
  });
  place = std::move(plan);
  return {};
}

// The bindings without sizes. "D" means two sizes.
std::map<std::string, std::string> parameters_of(const Plan& plan) {
  std::map<std::string, std::string> parameters = plan.bindings;
  std::erase_if(parameters, [](const auto& binding) {
    return binding.first == "D" || plan::parse_dim(binding.first).has_value();
  });
  return parameters;
}

// One direction of a shape.
struct Half {
  Sizes sizes;
  plan::Direction direction;
  bool operator==(const Half&) const = default;
};

Half half_of(const Plan& plan) { return {plan.shape.sizes, plan::direction_of(plan.program)}; }

bool has(const std::vector<Half>& halves, const Half& half) {
  return std::ranges::find(halves, half) != halves.end();
}

plan::Direction other(plan::Direction direction) {
  using plan::Direction;
  return direction == Direction::forward ? Direction::backward : Direction::forward;
}

void unbind(BuildRequest& request, Dim dim) {
  request.bindings.erase(std::string(plan::to_string(dim)));
  if (dim == Dim::Dqk || dim == Dim::Dv) request.bindings.erase("D");
}

}  // namespace

void drop_kernels(ShapePlans& plans) {
  for (std::optional<Plan>* plan : {&plans.forward, &plans.backward}) {
    if (!*plan) continue;
    (*plan)->compiled = {};
    (*plan)->kernels = {};
  }
}

Status same_directions(const ShapePlans& one, const ShapePlans& other) {
  if (one.forward.has_value() == other.forward.has_value() &&
      one.backward.has_value() == other.backward.has_value()) {
    return {};
  }
  return unfit(fmt::format("the plans for {} and {} do not have the same directions",
                           plan::to_text(one.shape.sizes), plan::to_text(other.shape.sizes)));
}

Result<std::vector<ShapePlans>> by_shape(plan::Bundle bundle) {
  std::vector<ShapePlans> all;
  for (Plan& plan : bundle.plans) {
    auto place = std::ranges::find_if(
        all, [&](const ShapePlans& plans) { return plans.shape.sizes == plan.shape.sizes; });
    if (place == all.end()) place = all.insert(place, ShapePlans{plan.shape});
    ATTN_RETURN_IF_ERROR(add(*place, std::move(plan)));
  }
  for (const ShapePlans& plans : all) ATTN_RETURN_IF_ERROR(same_directions(all.front(), plans));
  return all;
}

Result<plan::Bundle> for_device(plan::Bundle bundle, std::int64_t sm, bool needs_one) {
  if (needs_one) ATTN_RETURN_IF_ERROR(plan::plans_for_device(bundle, sm).status());
  std::vector<Half> here;
  for (const Plan& plan : bundle.plans) {
    if (plan.target.sm == sm) here.push_back(half_of(plan));
  }
  std::erase_if(bundle.plans, [&](const Plan& plan) {
    if (plan.target.sm == sm) return false;
    if (has(here, half_of(plan))) return true;
    here.push_back(half_of(plan));
    return false;
  });
  return bundle;
}

std::vector<std::string> drop_unfit(plan::Bundle& bundle, const Fits& fits) {
  std::vector<std::string> reasons;
  std::vector<Plan> fitting;
  std::vector<Half> lost, there;
  for (Plan& plan : bundle.plans) {
    const Status status = fits(plan);
    (status.ok() ? there : lost).push_back(half_of(plan));
    if (status.ok()) {
      fitting.push_back(std::move(plan));
      continue;
    }
    reasons.push_back(fmt::format("the plan for {} does not fit: {}",
                                  plan::to_text(plan.shape.sizes), status.error().message));
  }
  std::erase_if(lost, [&](const Half& half) { return has(there, half); });
  std::erase_if(fitting, [&](const Plan& plan) {
    return has(lost, {plan.shape.sizes, other(plan::direction_of(plan.program))});
  });
  bundle.plans = std::move(fitting);
  return reasons;
}

Result<BuildRequest> origin_of(const plan::Bundle& bundle) {
  if (bundle.plans.empty()) return unfit("there is no plan");
  const Plan& first = bundle.plans.front();
  BuildRequest origin{first.spec_text, first.bindings};
  std::vector<Sizes> sizes;
  for (const Plan& plan : bundle.plans) {
    if (plan.spec_text != first.spec_text || parameters_of(plan) != parameters_of(first)) {
      return unfit("the plans are not of one spec with the same parameters");
    }
    sizes.push_back(plan.shape.sizes);
  }
  // Dimensions with several sizes must be given when picking.
  for (const Dim dim : plan::varying(sizes)) unbind(origin, dim);
  return origin;
}

BuildRequest request_for(BuildRequest origin, const Sizes& wanted) {
  for (const Dim dim : plan::kDims) {
    if (!wanted.has(dim)) continue;
    origin.bindings[std::string(plan::to_string(dim))] = fmt::format("{}", wanted[dim]);
  }
  return origin;
}

Result<ShapePlans> built_plans(plan::Bundle bundle, const Sizes& wanted) {
  ATTN_ASSIGN(std::vector<ShapePlans> all, by_shape(std::move(bundle)));
  if (all.size() == 1 && plan::agree(wanted, all.front().shape.sizes)) {
    return std::move(all.front());
  }
  return Error{
      ErrorCode::plan_shape,
      fmt::format("the builder was asked for {}, but built plans for {}", plan::to_text(wanted),
                  all.empty() ? "nothing" : plan::to_text(all.front().shape.sizes))};
}

}  // namespace attn::picker
