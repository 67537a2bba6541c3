#include "runtime/plan/bundle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/graph/listing.h"

namespace attn::plan {
namespace {

Error without_choice(const Bundle& bundle, Direction direction, std::size_t found) {
  const std::string count = found == 0 ? "no" : std::to_string(found);
  return {ErrorCode::invalid_argument,
          fmt::format("the plan file has {} {} plan{}", count, to_string(direction),
                      found == 0 ? "" : "s"),
          {fmt::format("it has: {}", contents_text(bundle))}};
}

std::vector<Sizes> shapes_of(const Bundle& bundle) {
  std::vector<Sizes> shapes;
  for (const Plan& plan : bundle.plans) shapes.push_back(plan.shape.sizes);
  return shapes;
}

// Each plan's direction and its sizes of `dims`.
std::string contents_text(const Bundle& bundle, std::span<const Dim> dims) {
  std::string text;
  for (const Plan& plan : bundle.plans) {
    const std::string sizes = to_text(plan.shape.sizes, dims);
    text += text.empty() ? "" : ", ";
    text += to_string(direction_of(plan.program));
    if (!has_one_capability(bundle)) text += fmt::format(" for {}", escaped(plan.target.name));
    if (!sizes.empty()) text += " " + sizes;
  }
  return text;
}

// "sm_80 (a100), sm_89 (l40s)"
std::string targets_text(const Bundle& bundle) {
  std::vector<std::string> all;
  for (const Plan& plan : bundle.plans) {
    std::string each = fmt::format("sm_{} ({})", plan.target.sm, escaped(plan.target.name));
    if (std::ranges::find(all, each) == all.end()) all.push_back(std::move(each));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

Error without_shape(const Bundle& bundle, const Sizes& sizes) {
  std::vector<Dim> dims = varying(shapes_of(bundle));
  for (const Dim dim : kDims) {
    if (sizes.has(dim) && std::ranges::find(dims, dim) == dims.end()) dims.push_back(dim);
  }
  return {ErrorCode::invalid_argument,
          fmt::format("the plan file has no plan for {}", to_text(sizes)),
          {fmt::format("it has: {}", contents_text(bundle, dims))}};
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

Result<Plan> plan_of(Bundle bundle, Direction direction, std::int64_t sm) {
  ATTN_ASSIGN(Bundle here, plans_for_device(std::move(bundle), sm));
  return plan_of(std::move(here), direction);
}

bool has_one_capability(const Bundle& bundle) {
  return std::ranges::all_of(bundle.plans, [&](const Plan& plan) {
    return plan.target.sm == bundle.plans.front().target.sm;
  });
}

Result<Bundle> plans_for_device(Bundle bundle, std::int64_t sm) {
  if (has_one_capability(bundle)) return bundle;
  const auto is_other = [sm](const Plan& plan) { return plan.target.sm != sm; };
  if (std::ranges::all_of(bundle.plans, is_other)) {
    return Error{ErrorCode::plan_device,
                 fmt::format("the plan file has no plan for this device, which is sm_{}", sm),
                 {fmt::format("it has plans for {}", targets_text(bundle))}};
  }
  std::erase_if(bundle.plans, is_other);
  return bundle;
}

Result<Bundle> plans_for(Bundle bundle, const Sizes& sizes) {
  if (sizes == Sizes()) return bundle;
  const auto is_other = [&](const Plan& plan) { return !agree(sizes, plan.shape.sizes); };
  if (std::ranges::all_of(bundle.plans, is_other)) return without_shape(bundle, sizes);
  std::erase_if(bundle.plans, is_other);
  return bundle;
}

Status check_one_shape(const Bundle& bundle) {
  const std::vector<Dim> dims = varying(shapes_of(bundle));
  if (dims.empty()) return {};
  std::string names;
  for (const Dim dim : dims)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(dim));
  return Error{ErrorCode::invalid_argument,
               fmt::format("the plan file has plans for several sizes of {}", names),
               {fmt::format("it has: {}", contents_text(bundle))}};
}

std::string contents_text(const Bundle& bundle) {
  return contents_text(bundle, varying(shapes_of(bundle)));
}

}  // namespace attn::plan
