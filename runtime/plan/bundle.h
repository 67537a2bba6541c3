// The plans of one file: that of an attention alone, or those of a training pair, forward and
// backward. Which plan is meant is known by what it is (direction, bindings, target), not by its
// place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

struct Bundle {
  std::vector<Plan> plans;  // one or more; no two have the same signature

  // The first of that direction, or null.
  const Plan* find(Direction direction) const;
  bool operator==(const Bundle&) const = default;
};

// The bundle's plan of that direction. Errors: invalid_argument when it has none, or several.
Result<Plan> plan_of(Bundle bundle, Direction direction);

// As those of a single plan (plan.h): a bundle of one plan is the file of that plan, byte for byte.
// The limits of the format are those of all plans together.
std::string serialize(const Bundle& bundle);
Result<Bundle> deserialize_bundle(std::string_view bytes);
Status save(const Bundle& bundle, const std::string& path);
Result<Bundle> load_bundle(const std::string& path);

}  // namespace attn::plan
