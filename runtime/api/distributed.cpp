#include <array>

#include "runtime/api/bound.h"
#include "runtime/api/describe.h"
#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/sized.h"
#include "runtime/api/trust.h"
#include "runtime/plan/bundle.h"
#include "runtime/ranks/nccl_transport.h"

namespace {

std::vector<attn_interval> list_of(const attn::ranks::Intervals& set) {
  std::vector<attn_interval> list;
  for (const attn::ranks::Interval& each : set) list.push_back({each.begin, each.end});
  return list;
}

}  // namespace

attn_distributed::attn_distributed(attn::ranks::Distributed opened)
    : distributed(std::move(opened)),
      rows(list_of(distributed.program().rows)),
      keys(list_of(distributed.program().keys)) {}

namespace attn::api {
namespace {

constexpr plan::Direction kDirections[] = {plan::Direction::forward, plan::Direction::backward};

constexpr std::int32_t bit_of(plan::Direction direction) {
  return 1 << static_cast<int>(direction);
}

Result<plan::Direction> direction_of(attn_direction direction) {
  for (const plan::Direction each : kDirections) {
    if (direction == static_cast<attn_direction>(each)) return each;
  }
  return {ErrorCode::invalid_argument,
          fmt::format("{} is not an attn_direction: 0 is forward, 1 is backward", direction)};
}

ranks::AskForLost ask_for_lost(const attn_distributed_options& read) {
  if (read.lost == nullptr) return {};
  return [lost = read.lost, user = read.lost_user]() -> std::optional<std::string> {
    constexpr std::size_t kCapacity = 512;
    std::array<char, kCapacity> why{};
    if (lost(user, why.data(), why.size()) == 0) return std::nullopt;
    why.back() = '\0';
    return why[0] == '\0' ? "another rank is lost" : why.data();
  };
}

Result<ranks::DistributedOptions> options_of(const attn_distributed_options& read) {
  constexpr std::int32_t kAll =
      bit_of(plan::Direction::forward) | bit_of(plan::Direction::backward);
  if ((read.directions & ~kAll) != 0 || read.timeout_seconds < 0) {
    return {ErrorCode::invalid_argument,
            "`directions` must be bits of directions, and `timeout_seconds` not negative"};
  }
  const std::int32_t directions = read.directions == 0 ? kAll : read.directions;
  ranks::DistributedOptions options;
  options.forward = (directions & bit_of(plan::Direction::forward)) != 0;
  options.backward = (directions & bit_of(plan::Direction::backward)) != 0;
  if (read.timeout_seconds > 0) options.timeout = std::chrono::seconds(read.timeout_seconds);
  options.lost = ask_for_lost(read);
  return options;
}

Result<std::unique_ptr<ranks::Transport>> transport_of(const attn_runtime& runtime,
                                                       const attn_distributed_options& read,
                                                       const ranks::DistributedOptions& of_all) {
  ATTN_ASSIGN(auto nccl, ranks::Nccl::load(read.nccl_folder == nullptr ? "" : read.nccl_folder));
  ranks::NcclOptions options{read.communicator, 0, of_all.timeout, {}, of_all.lost};
  if (read.abort != nullptr)
    options.abort = [abort = read.abort, user = read.abort_user] { abort(user); };
  ATTN_ASSIGN(auto transport,
              ranks::NcclTransport::create(std::move(nccl), runtime.runtime->device(), options));
  return std::unique_ptr<ranks::Transport>(std::move(transport));
}

// `load` reads the file, after the transport is there: if it fails, other ranks are told.
template <typename Load>
Status open(attn_runtime& runtime, const attn_distributed_options* given, const Load& load,
            attn_distributed** distributed) {
  ATTN_RETURN_IF_ERROR(check_given({{given, "the options"}}));
  ATTN_ASSIGN(const attn_distributed_options read, read_sized(given));
  ATTN_RETURN_IF_ERROR(check_given({{read.communicator, "the communicator"}}));
  ATTN_ASSIGN(const ranks::DistributedOptions options, options_of(read));
  ATTN_ASSIGN(auto transport, transport_of(runtime, read, options));
  const Result<plan::Family> family = load(Trust(read).of_file());
  ATTN_ASSIGN(ranks::Distributed opened,
              ranks::Distributed::open(runtime.executables, family, std::move(transport), options));
  *distributed = new attn_distributed(std::move(opened));
  return {};
}

// The workspace is the object's, and there is no number of addresses to keep.
Result<void*> stream_of(const attn_bind_options* options) {
  ATTN_ASSIGN(const attn_bind_options read, read_sized(options));
  if (read.workspace == ATTN_WORKSPACE_OWNED && read.workspace_memory == nullptr &&
      read.kept_addresses == 0) {
    return read.stream;
  }
  return {ErrorCode::invalid_argument,
          "a binding of a distributed attention has `stream` as its only option"};
}

}  // namespace

ATTN_API attn_status attn_distributed_open_file(attn_runtime* runtime, const char* path,
                                                const attn_distributed_options* options,
                                                attn_distributed** distributed, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"},
                     {path, "the path"},
                     {distributed, "the output pointer for the distributed attention"}}));
    const auto load = [&](const plan::CheckBytes& check) { return plan::load_family(path, check); };
    return open(*runtime, options, load, distributed);
  });
}

ATTN_API attn_status attn_distributed_open_memory(attn_runtime* runtime, const void* bytes,
                                                  size_t byte_count,
                                                  const attn_distributed_options* options,
                                                  attn_distributed** distributed,
                                                  attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"},
                     {bytes, "the contents of a plan file"},
                     {distributed, "the output pointer for the distributed attention"}}));
    const auto load = [&](const plan::CheckBytes& check) {
      return plan::deserialize_family({static_cast<const char*>(bytes), byte_count}, check);
    };
    return open(*runtime, options, load, distributed);
  });
}

ATTN_API void attn_distributed_destroy(attn_distributed* distributed) { delete distributed; }

ATTN_API attn_status attn_distributed_describe(const attn_distributed* distributed,
                                               attn_distributed_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{distributed, "the distributed attention"}, {info, "the output pointer for the info"}}));
    const ranks::Distributed& its = distributed->distributed;
    attn_distributed_info about = {};
    about.name = its.division().name.c_str();
    about.family = its.division().family.c_str();
    about.sharding = its.division().sharding.c_str();
    about.rank = its.program().rank;
    about.ranks = static_cast<std::int32_t>(its.division().ranks.size());
    about.rows = distributed->rows.data();
    about.row_intervals = distributed->rows.size();
    about.keys = distributed->keys.data();
    about.key_intervals = distributed->keys.size();
    about.device_bytes = its.device_bytes();
    for (const plan::Direction direction : kDirections) {
      if (its.has(direction)) about.directions |= bit_of(direction);
    }
    return write_sized(info, about);
  });
}

ATTN_API attn_status attn_distributed_home(const attn_distributed* distributed, int32_t rank,
                                           int32_t which, attn_interval* intervals, size_t capacity,
                                           size_t* count, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{distributed, "the distributed attention"}, {count, "the output pointer for the count"}}));
    if (capacity > 0) ATTN_RETURN_IF_ERROR(check_given({{intervals, "the intervals"}}));
    const auto& ranks = distributed->distributed.division().ranks;
    if (rank < 0 || static_cast<std::size_t>(rank) >= ranks.size() || which < 0 || which > 1) {
      return Status(
          ErrorCode::invalid_argument,
          fmt::format("there is no rank {}, or {} is neither 0 (rows) nor 1 (keys)", rank, which));
    }
    const ranks::Program& program = ranks[static_cast<std::size_t>(rank)];
    const std::vector<attn_interval> home = list_of(which == 0 ? program.rows : program.keys);
    *count = home.size();
    std::copy_n(home.begin(), std::min(capacity, home.size()), intervals);
    return {};
  });
}

ATTN_API attn_status attn_distributed_tensor(const attn_distributed* distributed,
                                             attn_direction direction, size_t index,
                                             attn_tensor_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{distributed, "the distributed attention"}, {info, "the output pointer for the info"}}));
    ATTN_ASSIGN(const plan::Direction which, direction_of(direction));
    return describe(distributed->distributed.tensors(which), index, "tensor", info);
  });
}

ATTN_API size_t attn_distributed_tensor_count(const attn_distributed* distributed,
                                              attn_direction direction) {
  const auto which = direction_of(direction);
  return distributed == nullptr || !which.ok() ? 0
                                               : distributed->distributed.tensors(*which).size();
}

ATTN_API attn_status attn_distributed_param(const attn_distributed* distributed,
                                            attn_direction direction, size_t index,
                                            attn_param_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{distributed, "the distributed attention"}, {info, "the output pointer for the info"}}));
    ATTN_ASSIGN(const plan::Direction which, direction_of(direction));
    return describe(distributed->distributed.params(which), index, "param", info);
  });
}

ATTN_API size_t attn_distributed_param_count(const attn_distributed* distributed,
                                             attn_direction direction) {
  const auto which = direction_of(direction);
  return distributed == nullptr || !which.ok() ? 0 : distributed->distributed.params(*which).size();
}

ATTN_API attn_status attn_distributed_bind(attn_distributed* distributed, attn_direction direction,
                                           const attn_arguments* arguments,
                                           attn_distributed_binding** binding, attn_error* error) {
  return attn_distributed_binding_create(distributed, direction, arguments, nullptr, binding,
                                         error);
}

ATTN_API attn_status attn_distributed_binding_create(
    attn_distributed* distributed, attn_direction direction, const attn_arguments* arguments,
    const attn_bind_options* options, attn_distributed_binding** binding, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{distributed, "the distributed attention"},
                                      {arguments, "the arguments"},
                                      {binding, "the output pointer for the binding"}}));
    ATTN_ASSIGN(const plan::Direction which, direction_of(direction));
    const ranks::Distributed& its = distributed->distributed;
    ATTN_RETURN_IF_ERROR(check_devices(*arguments, its.device().ordinal()));
    ATTN_ASSIGN(void* const stream, stream_of(options));
    ATTN_ASSIGN(ranks::DistributedBinding bound, its.bind(which, arguments->arguments, stream));
    *binding = new attn_distributed_binding{std::move(bound)};
    return {};
  });
}

ATTN_API void attn_distributed_binding_destroy(attn_distributed_binding* binding) {
  delete binding;
}

ATTN_API attn_status attn_distributed_binding_set_addresses(attn_distributed_binding* binding,
                                                            void* const* addresses, size_t count,
                                                            attn_check check, void* stream,
                                                            attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return set_addresses(binding->binding, addresses, count, check, stream); });
}

ATTN_API attn_status attn_distributed_binding_set_param(attn_distributed_binding* binding,
                                                        const char* name, double value,
                                                        attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return set_param(binding->binding, name, value); });
}

ATTN_API attn_status attn_distributed_execute(attn_distributed_binding* binding, void* stream,
                                              attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return binding->binding.execute(stream); });
}

ATTN_API attn_status attn_distributed_status(attn_distributed* distributed, attn_error* error) {
  return guarded(error, {{distributed, "the distributed attention"}},
                 [&] { return distributed->distributed.status(); });
}

ATTN_API attn_status attn_distributed_abort(attn_distributed* distributed, const char* why,
                                            attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{distributed, "the distributed attention"}, {why, "the reason"}}));
    distributed->distributed.abort(why);
    return {};
  });
}

}  // namespace attn::api
