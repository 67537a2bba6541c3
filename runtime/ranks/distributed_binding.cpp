#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/cuda/capture.h"
#include "runtime/execute/checks.h"
#include "runtime/graph/extent.h"
#include "runtime/graph/listing.h"
#include "runtime/io/layout.h"
#include "runtime/ranks/distributed_state.h"
#include "runtime/ranks/given_values.h"

namespace attn::ranks {
namespace {

using plan::Direction;

bool is_empty(const plan::TensorInfo& tensor) {
  return std::ranges::find(tensor.dims, 0) != tensor.dims.end();
}

// Whether the caller's strides can be used; others are compared with those proposed, which they
// are not.
bool can_have(const plan::TensorInfo& tensor, const std::vector<std::int64_t>& strides) {
  if (strides.size() != tensor.dims.size()) return false;
  if (!last_offset(tensor.dims, strides)) return false;
  constexpr std::size_t kWithWidth = 4;
  if (strides.size() == kWithWidth && tensor.dims[3] != 1 && strides[3] != 1) return false;
  return !tensor.is_output() || !overlaps(tensor.dims, strides);
}

// The tensors as the caller binds them.
std::vector<plan::TensorInfo> bound_tensors(const Side& side, const std::vector<WholeTensor>& whole,
                                            const execute::Arguments& arguments) {
  std::vector<plan::TensorInfo> tensors = side.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    plan::TensorInfo& tensor = tensors[i];
    const auto given =
        std::ranges::find(arguments.tensors(), tensor.name, &execute::Arguments::Tensor::name);
    if (given == arguments.tensors().end() || given->view.as_planned || is_empty(tensor)) continue;
    if (whole[i].divided == Divided::no || given->view.dims != tensor.dims) continue;
    if (can_have(tensor, given->view.strides)) tensor.strides = given->view.strides;
  }
  return tensors;
}

// A division hides what these values hide: with others, what it leaves out would be missing.
Status check_hash(const GivenValue& given, const std::string& hash) {
  if (hash == given.hash) return {};
  return Error{ErrorCode::binding,
               fmt::format("{} has other values than those that the attention was divided for",
                           escaped(given.name)),
               {fmt::format("`compile --ranks` got --in {}={}; without it, any values are right",
                            escaped(given.name), escaped(given.from))}};
}

}  // namespace

struct DistributedBinding::State {
  State(std::shared_ptr<DistributedState> its_owner, Direction its_direction)
      : owner(std::move(its_owner)),
        direction(its_direction),
        communicates(owner->transport->ranks() > 1) {}

  // Steps of binding, called in this order.
  Status check(const execute::Arguments& arguments);
  Status check_values(const execute::Arguments& arguments, void* stream) const;
  Status check_tensor(const GivenValue& given, std::size_t tensor, const void* data,
                      void* stream) const;
  Status check_values(std::span<void* const> addresses, void* stream) const;
  Status compare(const GivenValue& given, const plan::TensorInfo& info, const void* data,
                 void* stream) const;
  Status plan();
  Status place();
  Status bind_parts(const execute::Arguments& arguments, void* stream);
  void fill_in();
  Status make_events();

  Status check(std::span<void* const> addresses) const;
  std::vector<void*> addresses_of_part(std::size_t part, const Bases& with) const;
  Bases bases(std::span<void* const> tensors) const;
  Status set_addresses_of_parts(std::span<void* const> addresses);
  Status run(void* stream);
  Status run_alone(void* stream);  // nothing is exchanged

  // Launches with addresses.
  struct Stage {
    std::vector<CopyLaunch> packs, early, late;
    std::vector<Piece> sends, receives;
  };
  struct Launches {
    std::vector<Stage> stages;
    std::vector<CopyLaunch> statistics;
    std::vector<MergeLaunch> outgoing, early, late, sums, learned;
    std::vector<Piece> sends, receives;
  };

  Status enqueue(const std::vector<CopyLaunch>& launches, void* stream) const;
  Status enqueue(const std::vector<MergeLaunch>& launches, void* stream) const;
  Status begin_exchanges(void* stream, void* exchanges);
  Status enqueue_inputs(void* exchanges);
  Status enqueue_parts(std::size_t stage, void* stream);
  bool exchanges_beside(std::size_t stage) const;
  Status begin_results(void* stream, void* exchanges);
  Status end_results(void* stream, void* exchanges);

  std::shared_ptr<DistributedState> owner;
  const Direction direction;
  plan::Program checked;  // tensors and params of the caller's, without empty tensors
  std::vector<plan::TensorInfo> tensors;
  std::vector<void*> home;  // addresses of all tensors
  bool is_checked = false;  // these, and their values
  Schedule schedule;
  const bool communicates;  // then this rank makes every exchange, even if it has nothing to send
  cuda::DeviceBuffer own_memory;  // if that of the object is too small
  void* memory = nullptr;
  cuda::DeviceBuffer table;  // with places of merges behind it
  std::vector<std::optional<execute::Binding>> parts;
  Launches launches;
  std::optional<cuda::Event> begun, packed, made, merged, summed, ended;
  std::vector<cuda::Event> arrived;  // by stage

 private:
  std::vector<const std::vector<Merge>*> merges() const {
    return {&schedule.outgoing, &schedule.early, &schedule.late, &schedule.sums, &schedule.learned};
  }
  std::vector<MergeLaunch> launches_of_merges(const std::vector<Merge>& merges, const Bases& with,
                                              const RanksPlace*& places) const;
};

DistributedBinding::DistributedBinding(std::unique_ptr<State> state) : state_(std::move(state)) {}
DistributedBinding::DistributedBinding(DistributedBinding&&) noexcept = default;
DistributedBinding& DistributedBinding::operator=(DistributedBinding&&) noexcept = default;
DistributedBinding::~DistributedBinding() = default;

// ---- Binding ----

Status DistributedBinding::State::check(const execute::Arguments& arguments) {
  const Side& side = owner->side(direction);
  const bool backward = direction == Direction::backward;
  tensors =
      bound_tensors(side, backward ? owner->division.backward : owner->division.forward, arguments);
  checked.params = owner->division.params;
  execute::Arguments given;
  for (const plan::TensorInfo& tensor : tensors) {
    if (!is_empty(tensor)) checked.tensors.push_back(tensor);
  }
  for (const execute::Arguments::Tensor& each : arguments.tensors()) {
    const auto known = std::ranges::find(tensors, each.name, &plan::TensorInfo::name);
    if (known == tensors.end() || !is_empty(*known)) given.tensor(each.name, each.view);
  }
  for (const execute::Arguments::Scalar& each : arguments.scalars())
    given.scalar(each.name, each.dtype, each.value);
  ATTN_RETURN_IF_ERROR(
      execute::check_arguments(checked, given, owner->device.ordinal(), cuda::classify));
  home.assign(tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto each =
        std::ranges::find(given.tensors(), tensors[i].name, &execute::Arguments::Tensor::name);
    if (each != given.tensors().end()) home[i] = each->view.data;
  }
  return {};
}

Status DistributedBinding::State::check_values(const execute::Arguments& arguments,
                                               void* stream) const {
  for (const GivenValue& given : owner->division.values) {
    const auto scalar =
        std::ranges::find(arguments.scalars(), given.name, &execute::Arguments::Scalar::name);
    if (scalar != arguments.scalars().end())
      ATTN_RETURN_IF_ERROR(check_hash(given, hash_of(scalar->value)));
  }
  return check_values(home, stream);
}

// Checks the values of tensors at an address at which they were not checked before.
Status DistributedBinding::State::check_values(std::span<void* const> addresses,
                                               void* stream) const {
  for (const GivenValue& given : owner->division.values) {
    const auto tensor = std::ranges::find(tensors, given.name, &plan::TensorInfo::name);
    if (tensor == tensors.end() || is_empty(*tensor)) continue;
    const auto index = static_cast<std::size_t>(tensor - tensors.begin());
    if (is_checked && addresses[index] == home[index]) continue;
    ATTN_RETURN_IF_ERROR(check_tensor(given, index, addresses[index], stream));
  }
  return {};
}

Status DistributedBinding::State::check_tensor(const GivenValue& given, std::size_t tensor,
                                               const void* data, void* stream) const {
  const plan::TensorInfo& info = tensors[tensor];
  const DistributedState::Compared its{given.name, data, info.strides};
  std::deque<DistributedState::Compared>& compared = owner->compared;
  ATTN_ASSIGN(const bool is_captured, cuda::is_capturing(owner->device, stream));
  if (is_captured) {
    if (std::ranges::find(compared, its) != compared.end()) return {};
    return Error{ErrorCode::binding,
                 fmt::format("the values of {} were not compared yet with those that the attention "
                             "was divided for, which cannot be done while a CUDA graph is captured",
                             escaped(given.name)),
                 {"bind or call it once before the capture, with the same tensors"}};
  }
  std::erase(compared, its);
  ATTN_RETURN_IF_ERROR(compare(given, info, data, stream));
  if (compared.size() == DistributedState::kMostCompared) compared.pop_back();
  compared.push_front(its);
  return {};
}

Status DistributedBinding::State::compare(const GivenValue& given, const plan::TensorInfo& info,
                                          const void* data, void* stream) const {
  ATTN_ASSIGN(const std::int64_t elements, io::storage_elements(info.dims, info.strides));
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(info.dtype));
  ATTN_RETURN_IF_ERROR(cuda::download(owner->device, data, bytes, stream));
  ATTN_ASSIGN(const io::HostTensor values, io::unpack(bytes, info.dims, info.strides, info.dtype));
  ATTN_ASSIGN(const std::string hash, hash_of(values, info.dtype));
  return check_hash(given, hash);
}

Status DistributedBinding::State::plan() {
  ATTN_ASSIGN(schedule, schedule_of({owner->division, owner->program(), direction, tensors,
                                     owner->side(direction).programs()}));
  return check_counts(schedule);
}

Status DistributedBinding::State::place() {
  const auto bytes =
      static_cast<std::size_t>(schedule.memory_bytes + owner->side(direction).workspace_bytes());
  memory = owner->memory.data();
  if (bytes > owner->memory.size()) {
    ATTN_ASSIGN(own_memory, cuda::DeviceBuffer::allocate(owner->device, bytes, owner->allocator));
    memory = own_memory.data();
  }
  std::vector<RanksPlace> places;
  const Bases unbound{memory, nullptr, home};
  for (const std::vector<Merge>* list : merges()) {
    for (const Merge& merge : *list) {
      for (const MergePlace& each : merge.places) places.push_back(resolved(each, unbound));
    }
  }
  const std::size_t words = schedule.table.size() * sizeof(std::int32_t);
  const std::size_t behind =
      (words + alignof(RanksPlace) - 1) / alignof(RanksPlace) * alignof(RanksPlace);
  ATTN_ASSIGN(table,
              cuda::DeviceBuffer::allocate(
                  owner->device, behind + places.size() * sizeof(RanksPlace), owner->allocator));
  ATTN_RETURN_IF_ERROR(table.upload(std::as_bytes(std::span(schedule.table))));
  return table.upload(std::as_bytes(std::span(places)), behind);
}

Bases DistributedBinding::State::bases(std::span<void* const> addresses) const {
  return {memory, table.data(), addresses};
}

std::vector<void*> DistributedBinding::State::addresses_of_part(std::size_t part,
                                                                const Bases& with) const {
  std::vector<void*> addresses;
  for (const Address& at : schedule.parts[part]) addresses.push_back(with.address(at));
  return addresses;
}

Status DistributedBinding::State::bind_parts(const execute::Arguments& arguments, void* stream) {
  const Side& side = owner->side(direction);
  parts.resize(side.parts.size());
  void* workspace = static_cast<std::byte*>(memory) + schedule.memory_bytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!side.parts[i]) continue;
    const plan::Program& program = side.parts[i]->program();
    const std::vector<void*> addresses = addresses_of_part(i, bases(home));
    execute::Arguments of_part;
    for (std::size_t j = 0; j < addresses.size(); ++j)
      of_part.address(program.tensors[j].name, addresses[j]);
    for (const plan::ParamInfo& param : program.params) {
      for (const execute::Arguments::Scalar& given : arguments.scalars()) {
        if (given.name == param.name) of_part.scalar(given.name, given.dtype, given.value);
      }
    }
    ATTN_ASSIGN(parts[i], side.parts[i]->bind(of_part, execute::Workspace::of(workspace),
                                              execute::kKeptAddresses, stream));
  }
  return {};
}

std::vector<MergeLaunch> DistributedBinding::State::launches_of_merges(
    const std::vector<Merge>& merges, const Bases& with, const RanksPlace*& places) const {
  std::vector<MergeLaunch> list;
  for (const Merge& merge : merges) {
    list.push_back(launch_of(merge, with, places));
    places += merge.places.size();
  }
  return list;
}

void DistributedBinding::State::fill_in() {
  const Bases with = bases(home);
  const auto pieces = [&](const std::vector<PlacedPiece>& placed) {
    std::vector<Piece> list;
    for (const PlacedPiece& piece : placed)
      list.push_back({piece.peer, with.address(piece.at), static_cast<std::size_t>(piece.bytes)});
    return list;
  };
  launches.stages.clear();
  for (const StageSchedule& stage : schedule.stages) {
    launches.stages.push_back({launches_of(stage.packs, with), launches_of(stage.early, with),
                               launches_of(stage.late, with), pieces(stage.exchange.sends),
                               pieces(stage.exchange.receives)});
  }
  launches.statistics = launches_of(schedule.statistics, with);
  launches.sends = pieces(schedule.results.sends);
  launches.receives = pieces(schedule.results.receives);
  std::size_t count = 0;
  for (const std::vector<Merge>* list : merges()) {
    for (const Merge& merge : *list) count += merge.places.size();
  }
  const RanksPlace* places = reinterpret_cast<const RanksPlace*>(
      static_cast<const std::byte*>(table.data()) + table.size() - count * sizeof(RanksPlace));
  launches.outgoing = launches_of_merges(schedule.outgoing, with, places);
  launches.early = launches_of_merges(schedule.early, with, places);
  launches.late = launches_of_merges(schedule.late, with, places);
  launches.sums = launches_of_merges(schedule.sums, with, places);
  launches.learned = launches_of_merges(schedule.learned, with, places);
}

Status DistributedBinding::State::make_events() {
  for (std::optional<cuda::Event>* event : {&begun, &packed, &made, &merged, &summed, &ended}) {
    ATTN_ASSIGN(*event, cuda::Event::create(owner->device, cuda::Event::Timing::no));
  }
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    ATTN_ASSIGN(cuda::Event event, cuda::Event::create(owner->device, cuda::Event::Timing::no));
    arrived.push_back(std::move(event));
  }
  return {};
}

Result<DistributedBinding> Distributed::bind(Direction direction,
                                             const execute::Arguments& arguments,
                                             void* stream) const {
  if (!has(direction)) {
    return {ErrorCode::invalid_argument,
            fmt::format("the {} is not in the file, or was not loaded", to_string(direction))};
  }
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state_->device));
  const cuda::RelaxedCapture relaxed(state_->device);
  auto state = std::make_unique<DistributedBinding::State>(state_, direction);
  ATTN_RETURN_IF_ERROR(state->check(arguments));
  ATTN_RETURN_IF_ERROR(state->check_values(arguments, stream));
  state->is_checked = true;
  ATTN_RETURN_IF_ERROR(state->plan());
  ATTN_RETURN_IF_ERROR(state->place());
  ATTN_RETURN_IF_ERROR(state->bind_parts(arguments, stream));
  ATTN_RETURN_IF_ERROR(state->make_events());
  state->fill_in();
  return DistributedBinding(std::move(state));
}

Status DistributedBinding::State::check(std::span<void* const> addresses) const {
  std::vector<void*> given;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_empty(tensors[i])) given.push_back(addresses[i]);
  }
  return execute::check_addresses(checked, given, owner->device.ordinal(), cuda::classify);
}

Status DistributedBinding::State::set_addresses_of_parts(std::span<void* const> addresses) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i]) continue;
    const std::vector<void*> of_part = addresses_of_part(i, bases(addresses));
    ATTN_RETURN_IF_ERROR(parts[i]->set_addresses(of_part, execute::Check::no));
  }
  return {};
}

Status DistributedBinding::set_addresses(std::span<void* const> addresses, execute::Check check,
                                         void* stream) {
  State& state = *state_;
  if (addresses.size() != state.tensors.size()) {
    return Status(ErrorCode::binding, fmt::format("{} addresses for {} tensors", addresses.size(),
                                                  state.tensors.size()));
  }
  const bool is_checked = check == execute::Check::no || state.is_checked;
  if (is_checked && std::ranges::equal(addresses, state.home)) return {};
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->device));
  if (check == execute::Check::yes) {
    ATTN_RETURN_IF_ERROR(state.check(addresses));
    ATTN_RETURN_IF_ERROR(state.check_values(addresses, stream));
  }
  const Status status = state.set_addresses_of_parts(addresses);
  if (!status.ok()) {
    // Some parts have them: all go back. What was set before can be set again.
    ATTN_CHECK(state.set_addresses_of_parts(state.home).ok(), "addresses that were set before");
    return status;
  }
  state.is_checked = check == execute::Check::yes;
  state.home.assign(addresses.begin(), addresses.end());
  state.fill_in();
  return {};
}

Status DistributedBinding::set_param(const std::string& name, double value) {
  State& state = *state_;
  const auto& params = state.checked.params;
  const auto param = std::ranges::find(params, name, &plan::ParamInfo::name);
  if (param == params.end()) {
    return Status(ErrorCode::binding,
                  fmt::format("the attention has no param '{}'", escaped(name)));
  }
  ATTN_RETURN_IF_ERROR(execute::check_scalar(name, param->dtype, value));
  const auto& values = state.owner->division.values;
  const auto given = std::ranges::find(values, name, &GivenValue::name);
  if (given != values.end()) ATTN_RETURN_IF_ERROR(check_hash(*given, hash_of(value)));
  const Side& side = state.owner->side(state.direction);
  for (std::size_t i = 0; i < state.parts.size(); ++i) {
    if (!state.parts[i]) continue;
    const auto& its = side.parts[i]->program().params;
    if (std::ranges::find(its, name, &plan::ParamInfo::name) == its.end()) continue;
    ATTN_RETURN_IF_ERROR(state.parts[i]->set_param(name, value));
  }
  return {};
}

// ---- Executing ----

Status DistributedBinding::State::enqueue(const std::vector<CopyLaunch>& list, void* stream) const {
  for (const CopyLaunch& launch : list) ATTN_RETURN_IF_ERROR(owner->kernels->run(launch, stream));
  return {};
}

Status DistributedBinding::State::enqueue(const std::vector<MergeLaunch>& list,
                                          void* stream) const {
  for (const MergeLaunch& launch : list) ATTN_RETURN_IF_ERROR(owner->kernels->run(launch, stream));
  return {};
}

// The first part waits for what comes before the first exchange: it may take all multiprocessors
// until it ends, and an exchange that is not ready when the part is would wait as long.
Status DistributedBinding::State::begin_exchanges(void* stream, void* exchanges) {
  ATTN_RETURN_IF_ERROR(begun->record(stream));
  ATTN_RETURN_IF_ERROR(begun->wait(exchanges));
  ATTN_RETURN_IF_ERROR(
      owner->kernels->mark(reinterpret_cast<void*>(owner->watch->begun_address()), exchanges));
  for (const Stage& stage : launches.stages) ATTN_RETURN_IF_ERROR(enqueue(stage.packs, exchanges));
  ATTN_RETURN_IF_ERROR(packed->record(exchanges));
  return packed->wait(stream);
}

Status DistributedBinding::State::enqueue_inputs(void* exchanges) {
  for (std::size_t i = 0; i < launches.stages.size(); ++i) {
    const Stage& stage = launches.stages[i];
    ATTN_RETURN_IF_ERROR(owner->transport->exchange(stage.sends, stage.receives, exchanges));
    ATTN_RETURN_IF_ERROR(arrived[i].record(exchanges));
  }
  return {};
}

Status DistributedBinding::State::enqueue_parts(std::size_t number, void* stream) {
  const Stage& stage = launches.stages[number];
  ATTN_RETURN_IF_ERROR(enqueue(stage.early, stream));
  // What is only sent must leave first, too: parts may take all multiprocessors until they end, and
  // the rank that receives it would wait as long.
  if (!stage.receives.empty() || !stage.sends.empty())
    ATTN_RETURN_IF_ERROR(arrived[number].wait(stream));
  ATTN_RETURN_IF_ERROR(enqueue(stage.late, stream));
  const std::vector<std::size_t>& its_parts = schedule.stages[number].parts;
  // NCCL's kernel begins a few microseconds after it could. A part that begins at once would have
  // all multiprocessors by then, and the exchange would wait until it ends, on all ranks.
  if (communicates && !its_parts.empty() && exchanges_beside(number))
    ATTN_RETURN_IF_ERROR(owner->kernels->pause(stream));
  for (const std::size_t part : its_parts) ATTN_RETURN_IF_ERROR(parts[part]->execute(stream));
  return {};
}

// Whether an exchange may begin when the parts of the stage do.
bool DistributedBinding::State::exchanges_beside(std::size_t stage) const {
  if (stage > schedule.results_after) return !schedule.results.empty();
  return std::any_of(
      launches.stages.begin() + static_cast<std::ptrdiff_t>(stage) + 1, launches.stages.end(),
      [](const Stage& later) { return !later.sends.empty() || !later.receives.empty(); });
}

// What follows on `stream` waits for what comes before the exchange, as the first part does.
Status DistributedBinding::State::begin_results(void* stream, void* exchanges) {
  const bool waits = !schedule.results.empty();
  if (waits) {
    ATTN_RETURN_IF_ERROR(made->record(stream));
    ATTN_RETURN_IF_ERROR(made->wait(exchanges));
    ATTN_RETURN_IF_ERROR(enqueue(launches.outgoing, exchanges));
    ATTN_RETURN_IF_ERROR(merged->record(exchanges));
  }
  ATTN_RETURN_IF_ERROR(owner->transport->exchange(launches.sends, launches.receives, exchanges));
  return waits ? merged->wait(stream) : Status();
}

Status DistributedBinding::State::end_results(void* stream, void* exchanges) {
  ATTN_RETURN_IF_ERROR(enqueue(launches.sums, stream));
  if (schedule.sum_count > 0) {
    ATTN_RETURN_IF_ERROR(summed->record(stream));
    ATTN_RETURN_IF_ERROR(summed->wait(exchanges));
    auto* sums = static_cast<float*>(bases(home).address(schedule.sum));
    ATTN_RETURN_IF_ERROR(owner->transport->all_reduce(
        sums, static_cast<std::size_t>(schedule.sum_count), exchanges));
  }
  ATTN_RETURN_IF_ERROR(
      owner->kernels->mark(reinterpret_cast<void*>(owner->watch->ended_address()), exchanges));
  ATTN_RETURN_IF_ERROR(ended->record(exchanges));
  ATTN_RETURN_IF_ERROR(enqueue(launches.statistics, stream));  // beside the exchange
  ATTN_RETURN_IF_ERROR(enqueue(launches.early, stream));
  ATTN_RETURN_IF_ERROR(ended->wait(stream));
  ATTN_RETURN_IF_ERROR(enqueue(launches.late, stream));
  return enqueue(launches.learned, stream);
}

Status DistributedBinding::State::run(void* stream) {
  if (!communicates) return run_alone(stream);
  void* exchanges = owner->exchanges->handle();
  ATTN_RETURN_IF_ERROR(begin_exchanges(stream, exchanges));
  ATTN_RETURN_IF_ERROR(enqueue_inputs(exchanges));
  for (std::size_t stage = 0; stage < launches.stages.size(); ++stage) {
    ATTN_RETURN_IF_ERROR(enqueue_parts(stage, stream));
    if (stage == schedule.results_after) ATTN_RETURN_IF_ERROR(begin_results(stream, exchanges));
  }
  return end_results(stream, exchanges);
}

Status DistributedBinding::State::run_alone(void* stream) {
  for (std::size_t stage = 0; stage < launches.stages.size(); ++stage)
    ATTN_RETURN_IF_ERROR(enqueue_parts(stage, stream));
  ATTN_RETURN_IF_ERROR(enqueue(launches.statistics, stream));
  for (const auto* list : {&launches.sums, &launches.early, &launches.learned})
    ATTN_RETURN_IF_ERROR(enqueue(*list, stream));
  return {};
}

Status DistributedBinding::execute(void* stream) {
  State& state = *state_;
  DistributedState& owner = *state.owner;
  ATTN_RETURN_IF_ERROR(owner.watch->status());
  cuda::Scope scope;
  Status status = scope.enter(owner.device);
  bool is_captured = false;
  if (status.ok()) {
    const Result<bool> capturing = cuda::is_capturing(owner.device, stream);
    is_captured = capturing.ok() && *capturing;
    if (!capturing.ok()) status = capturing.error();
  }
  if (status.ok() && state.communicates) owner.watch->enqueued(is_captured);
  if (status.ok()) status = state.run(stream);
  if (status.ok() || !state.communicates || is_captured) [[likely]]
    return status;
  // Others wait for what this rank did not enqueue; or it did not because the watch ended the wait.
  owner.watch->fail(status.error());
  return owner.watch->status();
}

}  // namespace attn::ranks
