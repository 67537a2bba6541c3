#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/sized.h"
#include "runtime/plan/schedule_options.h"

namespace attn::api {
namespace {

static_assert(ATTN_SCHEDULE_UNDIVIDED == plan::kScheduleTooManyParts);
static_assert(ATTN_SCHEDULE_TOO_LONG == plan::kScheduleTooLong);
static_assert(ATTN_SCHEDULE_NOT_SHARED == plan::kScheduleNotShared);
static_assert(ATTN_SHARED_BESIDE == execute::SequenceCount::kBeside);

Result<execute::ScheduleSettings> settings_of(const attn_schedule_options* options) {
  ATTN_ASSIGN(const attn_schedule_options read, read_sized(options));
  return execute::ScheduleSettings{.max_parts = read.max_parts,
                                   .split_keys = read.split_keys,
                                   .sm_margin = read.sm_margin,
                                   .capacity_rows = read.capacity_rows,
                                   .capacity_keys = read.capacity_keys};
}

}  // namespace

ATTN_API attn_status attn_schedule_create(const attn_executable* executable,
                                          const attn_schedule_options* options,
                                          attn_schedule** schedule, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{executable, "the executable"}, {schedule, "the output pointer for the schedule"}}));
    ATTN_ASSIGN(const execute::ScheduleSettings settings, settings_of(options));
    ATTN_ASSIGN(execute::Schedule made, execute::Schedule::make(executable->executable, settings));
    *schedule = new attn_schedule{std::move(made)};
    return {};
  });
}

ATTN_API void attn_schedule_destroy(attn_schedule* schedule) { delete schedule; }

ATTN_API attn_status attn_schedule_build(attn_schedule* schedule, attn_binding* binding,
                                         const int32_t* device_sequences, int64_t sequences,
                                         void* stream, attn_error* error) {
  return attn_schedule_build_shared(schedule, binding, device_sequences, sequences, 0, stream,
                                    error);
}

ATTN_API attn_status attn_schedule_build_shared(attn_schedule* schedule, attn_binding* binding,
                                                const int32_t* device_sequences, int64_t sequences,
                                                int64_t shared_keys, void* stream,
                                                attn_error* error) {
  return guarded(error, {{schedule, "the schedule"}, {binding, "the binding"}}, [&] {
    return schedule->schedule.build(binding->binding, {device_sequences, sequences, shared_keys},
                                    stream);
  });
}

ATTN_API attn_status attn_binding_use_schedule(attn_binding* binding, const attn_schedule* schedule,
                                               attn_error* error) {
  return guarded(error, {{binding, "the binding"}}, [&] {
    return binding->binding.use_schedule(schedule == nullptr ? nullptr : &schedule->schedule);
  });
}

ATTN_API attn_status attn_schedule_flags(const attn_schedule* schedule, void* stream,
                                         uint32_t* flags, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{schedule, "the schedule"}, {flags, "the output pointer for the flags"}}));
    ATTN_ASSIGN(*flags, schedule->schedule.flags(stream));
    return {};
  });
}

}  // namespace attn::api
