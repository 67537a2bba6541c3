// Checks the form of kernel steps. Internal to runtime/plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/plan/program_so_far.h"

namespace attn::plan {

// Checks everything but which tensors exist: the limits of a launch (compute capability 9.0, the
// largest), of arguments, and of tensor maps. Returns an error text, or an empty string.
std::string check_launches(const KernelStep& step);

// The same for the schedule of a step that check_launches accepts, if it has one, once its tensors
// are known; notes that the program has one.
std::string check_schedule(const KernelStep& step, ProgramSoFar& so_far);

// The same for the axes of a map of this tensor.
std::string check_axes(const TensorMapArgument& map, const TensorInfo& tensor);

// The same for its rank, sizes, swizzle, promotion and alignment, once it has no axes.
std::string check_map(const TensorMapArgument& map, const TensorInfo& tensor);

// The largest element offset in the map; nullopt as for last_offset.
std::optional<std::int64_t> last_mapped(const TensorMapArgument& map);

}  // namespace attn::plan
