#include "runtime/plan/bundle.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::plan {
namespace {

Error without_choice(const Bundle& bundle, Direction direction, std::size_t found) {
  std::string directions;
  for (const Plan& plan : bundle.plans) {
    directions +=
        fmt::format("{}{}", directions.empty() ? "" : ", ", to_string(direction_of(plan.program)));
  }
  const std::string count = found == 0 ? "no" : std::to_string(found);
  return {ErrorCode::invalid_argument,
          fmt::format("the plan file has {} {} plan{}", count, to_string(direction),
                      found == 0 ? "" : "s"),
          {fmt::format("it has: {}", directions)},
          {}};
}

}  // namespace

const Plan* Bundle::find(Direction direction) const {
  const auto found = std::ranges::find(plans, direction,
                                       [](const Plan& plan) { return direction_of(plan.program); });
  return found == plans.end() ? nullptr : &*found;
}

Result<Plan> plan_of(Bundle bundle, Direction direction) {
  const auto is_wanted = [direction](const Plan& plan) {
    return direction_of(plan.program) == direction;
  };
  const auto found = std::ranges::count_if(bundle.plans, is_wanted);
  if (found != 1) return without_choice(bundle, direction, static_cast<std::size_t>(found));
  return std::move(*std::ranges::find_if(bundle.plans, is_wanted));
}

}  // namespace attn::plan
