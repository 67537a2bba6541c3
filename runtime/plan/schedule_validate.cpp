#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/listing.h"
#include "runtime/plan/kernel_step_validate.h"
#include "runtime/plan/schedule_options.h"

namespace attn::plan {
namespace {

constexpr std::int64_t kOptionWords = sizeof(ScheduleOptions) / sizeof(std::int32_t);
constexpr std::int64_t kMostOfSchedule = (std::int64_t{1} << 31) - 1;  // of the other numbers

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Each check returns an error text, or an empty string.

std::string check_numbers(const Schedule& schedule) {
  if (schedule.slots < 1 || schedule.slots > kMostSlots) {
    return fmt::format("has a schedule of {} slots", schedule.slots);
  }
  for (const std::int64_t number : {schedule.slot_words, schedule.slot_elements, schedule.sequences,
                                    schedule.units, schedule.tile_rows, schedule.tile_keys}) {
    if (number < 1 || number > kMostOfSchedule) return "has a schedule of invalid sizes";
  }
  return "";
}

std::string check_internals(const KernelStep& step, const ProgramSoFar& so_far) {
  const Schedule& schedule = *step.schedule;
  for (const auto& [name, dtype] :
       {std::pair(&schedule.tensor, DType::i32), std::pair(&schedule.options, DType::i32),
        std::pair(&schedule.parts, DType::f32)}) {
    const TensorInfo* found = so_far.tensor(*name);
    if (found == nullptr || found->role != TensorRole::internal || found->dtype != dtype) {
      return fmt::format("has a schedule in {}, which is not internal or of another type",
                         attn::quoted(*name));
    }
  }
  for (const std::string* written : {&schedule.tensor, &schedule.parts}) {
    if (!contains(step.outputs, *written)) {
      return fmt::format("has a schedule in {}, which it does not write", attn::quoted(*written));
    }
  }
  if (schedule.tensor == schedule.parts) return "has a schedule in the memory of its parts";
  if (contains(step.zeroed, schedule.options) || so_far.once.contains(schedule.options)) return "";
  return fmt::format("has a schedule with options in {}, which is neither zeroed nor made at load",
                     attn::quoted(schedule.options));
}

std::string check_extents(const Schedule& schedule, const ProgramSoFar& so_far) {
  const auto elements_of = [&so_far](const std::string& name) {
    return elements(so_far.tensor(name)->dims);
  };
  const bool fits = elements_of(schedule.tensor) >= schedule.slots * schedule.slot_words &&
                    elements_of(schedule.parts) == schedule.slots * schedule.slot_elements &&
                    elements_of(schedule.options) >= kOptionWords;
  return fits ? "" : "has a schedule whose sizes are not those of its tensors";
}

// Nothing but what is bound, or made at load, may decide a schedule that is made alone.
std::string check_maker(const KernelStep& step, const ProgramSoFar& so_far) {
  const Schedule& schedule = *step.schedule;
  const Launch& maker = step.launches[0];
  for (const std::string* name : {&schedule.tensor, &schedule.options}) {
    if (names(maker, *name)) continue;
    return fmt::format("has a schedule in {}, which its first launch does not have",
                       attn::quoted(*name));
  }
  for (const KernelArgument& argument : maker.arguments) {
    const TensorOperand* named = tensor_of(argument);
    const bool is_own = named == nullptr || named->name == schedule.tensor ||
                        named->name == schedule.options || named->name == schedule.parts;
    if (is_own) continue;
    if (!is_made(*so_far.tensor(named->name)) || so_far.once.contains(named->name)) continue;
    return fmt::format("has a schedule that is made with {}, which is not bound",
                       attn::quoted(named->name));
  }
  const bool is_read =
      std::any_of(step.launches.begin() + 1, step.launches.end(),
                  [&schedule](const Launch& later) { return names(later, schedule.tensor); });
  return is_read ? "" : "has a schedule that no later launch has";
}

}  // namespace

std::string check_schedule(const KernelStep& step, ProgramSoFar& so_far) {
  if (!step.schedule) return "";
  if (so_far.has_schedule) return "has a schedule, as a step before";
  so_far.has_schedule = true;
  if (step.turns != 1) return "has a schedule in a loop";
  if (std::string what = check_numbers(*step.schedule); !what.empty()) return what;
  if (std::string what = check_internals(step, so_far); !what.empty()) return what;
  if (std::string what = check_extents(*step.schedule, so_far); !what.empty()) return what;
  return check_maker(step, so_far);
}

}  // namespace attn::plan
