// The plans of one file: that of an attention alone, those of a training pair, forward and
// backward, or either for several shapes. Which plan is meant is known by what it is (direction,
// shape, target), not by its place.
#pragma once

#include <functional>
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

// The plans whose shapes have every size of `sizes`; with no sizes all. Errors: invalid_argument,
// with the shapes that there are, when there is no such plan.
Result<Bundle> plans_for(Bundle bundle, const Sizes& sizes);

// Errors: invalid_argument, with the shapes that there are, when they are several.
Status check_one_shape(const Bundle& bundle);

// "forward Sq=16, forward Sq=32": each plan's direction, and its sizes where not all have the same.
std::string contents_text(const Bundle& bundle);

// As those of a single plan (plan.h): a bundle of one plan is the file of that plan, byte for byte.
// The limits of the format are those of all plans together (fits_file): what is serialized must
// keep them, save() says when it does not (invalid_argument).
Status fits_file(const Bundle& bundle);
std::string serialize(const Bundle& bundle);
Result<Bundle> deserialize_bundle(std::string_view bytes);
Status save(const Bundle& bundle, const std::string& path);
Result<Bundle> load_bundle(const std::string& path);

// The same, with a check that is called with the contents of the file before anything is parsed.
// Errors: its own too.
using CheckBytes = std::function<Status(std::string_view bytes)>;
Result<Bundle> load_bundle(const std::string& path, const CheckBytes& check);
Result<Plan> load(const std::string& path, Direction direction, const CheckBytes& check);

}  // namespace attn::plan
