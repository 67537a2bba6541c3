// Schedule: made once for the executes of many bindings. Part of attn.hpp.
#pragma once

#include <cstdint>

#include "binding.hpp"
#include "executable.hpp"
#include "schedule.h"

namespace attn {
inline namespace v2 {

// What a schedule may do: the fields of attn_schedule_options, at first all 0.
struct ScheduleOptions : attn_schedule_options {
  ScheduleOptions() : attn_schedule_options{} { size = sizeof(attn_schedule_options); }
};

// How many of the plan's sequences are computed, from the first on, and what keys they share.
class Sequences {
 public:
  // Those that the plan has.
  static Sequences all() { return Sequences(nullptr, -1); }
  // This number of them.
  static Sequences of(std::int64_t number) { return Sequences(nullptr, number); }
  // As many as an i32 in device memory says when the schedule is made. The caller owns it.
  static Sequences at(const std::int32_t* address) { return Sequences(address, -1); }

  // The same, which begin with so many keys in the same pages: see attn_schedule_build_shared.
  Sequences sharing(std::int64_t keys) const {
    Sequences sharing = *this;
    sharing.shared_keys_ = keys;
    return sharing;
  }
  // The same, of as many shared keys as a second i32 says, behind that of at().
  Sequences sharing_beside() const { return sharing(ATTN_SHARED_BESIDE); }

 private:
  friend class Schedule;
  Sequences(const std::int32_t* address, std::int64_t number)
      : address_(address), number_(number) {}
  const std::int32_t* address_;
  std::int64_t number_;
  std::int64_t shared_keys_ = 0;
};

// A schedule of the lengths of a batch, in device memory: see attn_schedule. For one thread at a
// time.
class Schedule {
 public:
  Schedule() = default;
  // Errors: unsupported, invalid_argument, cuda.
  static Result<Schedule> create(const Executable& executable,
                                 const ScheduleOptions& options = {}) {
    const attn_schedule_options* plain = &options;
    return detail::make<Schedule, attn_schedule>(attn_schedule_create, executable.handle(), plain);
  }
  // Enqueues the kernel that makes it of the lengths of the binding, and returns without waiting.
  // Errors: binding, invalid_argument, unsupported, cuda.
  Status build(Binding& binding, Sequences sequences, void* stream) {
    return call_(attn_schedule_build_shared, handle(), binding.handle(), sequences.address_,
                 sequences.number_, sequences.shared_keys_, stream);
  }
  // ATTN_SCHEDULE_UNDIVIDED, ATTN_SCHEDULE_TOO_LONG and ATTN_SCHEDULE_NOT_SHARED, of the last
  // build. Waits for the stream. Errors: cuda.
  Result<std::uint32_t> flags(void* stream) const {
    std::uint32_t flags = 0;
    ATTN_TRY(call_(attn_schedule_flags, handle(), stream, &flags));
    return flags;
  }

  attn_schedule* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Schedule(attn_schedule* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_schedule, attn_schedule_destroy> handle_;
};

inline Status Binding::use_schedule(const Schedule& schedule) {
  return call_(attn_binding_use_schedule, handle(), schedule.handle());
}

inline Result<Binding> Executable::bind(const Arguments& arguments, const Schedule& schedule,
                                        Workspace workspace, std::uint64_t kept_addresses,
                                        void* stream) const {
  if (arguments.error()) return *arguments.error();
  attn_bind_options options = workspace.options();
  options.kept_addresses = kept_addresses;
  options.stream = stream;
  options.schedule = schedule.handle();
  return detail::make<Binding, attn_binding>(attn_binding_create, handle(), arguments.handle(),
                                             &options);
}

}  // namespace v2
}  // namespace attn
