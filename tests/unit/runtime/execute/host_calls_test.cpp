// Tests what repeated executes, and builds of schedules, ask of the driver and allocate: launches,
// and what changed since.
#include <cuda.h>

#include <functional>
#include <sstream>

#include "runtime/cuda/stream.h"
#include "runtime/execute/schedule.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using standin::Case;
using Calls = std::vector<std::string>;

// The names of the driver's functions that `work` calls, in order.
Calls calls_of(const std::function<void()>& work) {
  const std::size_t before = standin::log_of(standin::cuda().control).size();
  standin::cuda().control.record(1);
  work();
  standin::cuda().control.record(0);
  Calls names;
  std::istringstream log(standin::log_of(standin::cuda().control).substr(before));
  for (std::string line; std::getline(log, line);) names.push_back(line.substr(0, line.find(' ')));
  return names;
}

class HostCalls : public WithCase {
 protected:
  void load_and_bind(const plan::Program& program) {
    load(standin::plan_of(program));
    binding_.emplace(must(executable_->bind(on_->arguments())));
    EXPECT_OK(executable_->device().make_current());
  }
  void TearDown() override {
    binding_.reset();
    schedule_.reset();
    WithCase::TearDown();
  }
  void execute() { EXPECT_OK(binding_->execute(nullptr)); }
  // Executes with that address of a tensor.
  void execute_at(std::size_t tensor, void* address) {
    std::vector<void*> addresses = on_->addresses();
    addresses[tensor] = address;
    EXPECT_OK(binding_->set_addresses(addresses, Check::no));
    execute();
  }
  void use_schedule() {
    schedule_.emplace(must(Schedule::make(*executable_)));
    EXPECT_OK(binding_->use_schedule(&*schedule_));
    EXPECT_OK(schedule_->build(*binding_, {}, nullptr));
  }

  std::optional<Binding> binding_;
  std::optional<Schedule> schedule_;
};

const char* const kContext = "cuCtxGetCurrent";
const char* const kZero = "cuMemsetD8Async";
const char* const kFill = "cuMemsetD32Async";
const char* const kEncode = "cuTensorMapEncodeTiled";
const char* const kLaunch = "cuLaunchKernelEx";

TEST_F(HostCalls, OfAnExecuteAreItsLaunches) {
  load_and_bind(plan::testing::scheduled_program());
  const Case other = must(Case::make(executable_->device(), plan_, 2));
  const Calls own = {kContext, kZero, kZero, kLaunch, kLaunch};
  EXPECT_EQ(calls_of([&] { execute(); }), own);
  EXPECT_EQ(calls_of([&] { execute_at(0, other.addresses()[0]); }), own);
  use_schedule();
  const Calls scheduled = {kContext, kZero, kLaunch};
  EXPECT_EQ(calls_of([&] { execute(); }), scheduled);
  for (void* const q : {other.addresses()[0], on_->addresses()[0], other.addresses()[0]}) {
    EXPECT_EQ(calls_of([&] { execute_at(0, q); }), scheduled);
  }
}

// The map of q is encoded where q moved, and no other one; maps of late addresses are kept.
TEST_F(HostCalls, EncodeTheMapsOfTensorsThatMoved) {
  load_and_bind(plan::testing::bound_program());
  Case other = must(Case::make(executable_->device(), plan_, 2));
  constexpr std::size_t kQ = 0, kV = 2;
  const Calls same = {kContext, kLaunch}, moved = {kEncode, kContext, kLaunch};
  EXPECT_EQ(calls_of([&] { execute(); }), same);
  EXPECT_EQ(calls_of([&] { execute_at(kQ, other.addresses()[kQ]); }), moved);
  EXPECT_EQ(calls_of([&] { execute_at(kQ, other.addresses()[kQ]); }), same);
  EXPECT_EQ(calls_of([&] { execute_at(kQ, on_->addresses()[kQ]); }), same);
  EXPECT_EQ(calls_of([&] { execute_at(kV, other.addresses()[kV]); }), same);
  EXPECT_OK(binding_->set_addresses(other.addresses(), Check::no));
  expect_right(other, *binding_);
}

// The kind of memory is asked for where a tensor is elsewhere.
TEST_F(HostCalls, CheckTheAddressesThatMoved) {
  load_and_bind(plan::testing::scheduled_program());
  const Case other = must(Case::make(executable_->device(), plan_, 2));
  std::vector<void*> addresses = on_->addresses();
  const auto asked = [&] {
    const std::int64_t before = cuda_calls("cuPointerGetAttributes");
    EXPECT_OK(binding_->set_addresses(addresses));
    return cuda_calls("cuPointerGetAttributes") - before;
  };
  EXPECT_EQ(asked(), 0);
  addresses[0] = other.addresses()[0];
  EXPECT_EQ(asked(), 1);
  EXPECT_EQ(asked(), 0);
  EXPECT_OK(binding_->set_addresses(other.addresses(), Check::no));
  addresses = other.addresses();
  EXPECT_EQ(asked(), static_cast<std::int64_t>(addresses.size()) - 1) << "q was checked";
  addresses[1] = nullptr;
  EXPECT_EQ(binding_->set_addresses(addresses).error().code, ErrorCode::binding);
}

// The driver decides about a null address: it is no map that is kept.
TEST_F(HostCalls, NullHasNoKeptMap) {
  load_and_bind(plan::testing::bound_program());
  std::vector<void*> addresses = on_->addresses();
  addresses[0] = nullptr;
  const std::int64_t before = cuda_calls(kEncode);
  static_cast<void>(binding_->set_addresses(addresses, Check::no));
  EXPECT_EQ(cuda_calls(kEncode) - before, 1);
}

// Every address has its own map, whether it is kept or was replaced.
TEST_F(HostCalls, KeptMapsAreThoseOfTheirAddresses) {
  load_and_bind(plan::testing::bound_program());
  std::vector<Case> cases;
  for (int seed = 0; seed < 100; ++seed)
    cases.push_back(must(Case::make(executable_->device(), plan_, seed)));
  const auto run_all = [&](std::size_t count) {
    const std::int64_t before = cuda_calls(kEncode);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_OK(binding_->set_addresses(cases[i].addresses(), Check::no));
      expect_right(cases[i], *binding_);
    }
    return cuda_calls(kEncode) - before;
  };
  EXPECT_EQ(run_all(100), 200);
  EXPECT_GT(run_all(100), 100);
  run_all(4);
  EXPECT_LT(run_all(4), 8) << "as many as a binding keeps";
}

// The second of two maps cannot be made: neither is changed.
TEST_F(HostCalls, AddressesOfWhichNoMapCanBeMadeChangeNothing) {
  load_and_bind(plan::testing::bound_program());
  Case other = must(Case::make(executable_->device(), plan_, 2));
  for (const long nth : {1, 2}) {
    script_cuda(standin::fail_nth(kEncode, nth, CUDA_ERROR_INVALID_VALUE));
    EXPECT_EQ(binding_->set_addresses(other.addresses()).error().code, ErrorCode::cuda);
    expect_right(*on_, *binding_);
  }
  EXPECT_OK(binding_->set_addresses(other.addresses()));
  expect_right(other, *binding_);
}

TEST_F(HostCalls, OfABuildAreItsLaunch) {
  load_and_bind(plan::testing::scheduled_program());
  use_schedule();
  const Calls repeated = {kContext, kZero, kLaunch};  // counters of the options are zeroed
  for (const std::int64_t number : {-1, 0, 2, 1, 2}) {
    EXPECT_EQ(calls_of([&] {
                EXPECT_OK(schedule_->build(*binding_, {nullptr, number}, nullptr));
              }),
              repeated);
  }
}

// An address is checked and written once; what is captured is written by the graph.
TEST_F(HostCalls, OfABuildWithAnAddressAreItsLaunchToo) {
  load_and_bind(plan::testing::scheduled_program());
  use_schedule();
  {
    const cuda::DeviceBuffer counts =
        must(cuda::DeviceBuffer::allocate(executable_->device(), 128));
    const cuda::Stream stream = must(cuda::Stream::create(executable_->device()));
    const auto build_at = [&](std::size_t index, void* on) {
      const auto* address = static_cast<const std::int32_t*>(counts.data()) + index;
      return schedule_->build(*binding_, {address}, on);
    };
    const auto calls_at = [&](std::size_t index) {
      return calls_of([&] { EXPECT_OK(build_at(index, stream.handle())); });
    };
    const Calls first = {
        kContext, "cuPointerGetAttributes", kFill, kFill, "cuStreamIsCapturing", kZero, kLaunch};
    const Calls repeated = {kContext, kZero, kLaunch};
    const Calls written = {kContext, kFill, kFill, "cuStreamIsCapturing", kZero, kLaunch};
    EXPECT_EQ(calls_at(1), first);
    EXPECT_EQ(calls_at(1), repeated);
    const auto graph = must(
        cuda::Graph::capture(executable_->device(), [&](void* on) { return build_at(2, on); }));
    EXPECT_EQ(calls_at(2), written);
    EXPECT_EQ(calls_at(2), repeated);
    for (std::size_t i = 3; i < 20; ++i) EXPECT_EQ(calls_at(i), first);
    EXPECT_EQ(calls_at(19).size(), first.size()) << "the last record is for any address";
    EXPECT_EQ(calls_at(1), repeated);
  }
}

// A binding has no memory for what a schedule has.
class Workspaces : public HostCalls {
 protected:
  // Bytes of the workspace of the program: with turns alone, and with all.
  static constexpr std::int64_t kTurns = 256, kAll = 256 + 256 + 512 + 256;

  static std::int64_t bytes() { return standin::live().bytes; }
};

TEST_F(Workspaces, AreSmallerWithASchedule) {
  load(standin::plan_of(plan::testing::scheduled_program()));
  EXPECT_EQ(executable_->workspace_bytes(), kAll);
  Schedule schedule = must(Schedule::make(*executable_));
  const std::int64_t before = bytes();
  {
    Binding binding = must(executable_->bind(on_->arguments()));
    EXPECT_EQ(bytes(), before + kAll);
    EXPECT_OK(binding.use_schedule(&schedule));
    EXPECT_EQ(bytes(), before + kTurns);
    EXPECT_OK(schedule.build(binding, {}, nullptr));
    EXPECT_OK(binding.execute(nullptr));
    EXPECT_OK(binding.use_schedule(nullptr));
    EXPECT_EQ(bytes(), before + kTurns + kAll) << "a graph may use the smaller one";
    expect_right(*on_, binding);
    EXPECT_OK(binding.use_schedule(&schedule));
    EXPECT_OK(binding.execute(nullptr));
    EXPECT_EQ(bytes(), before + kTurns + kAll) << "or the larger one";
  }
  EXPECT_EQ(bytes(), before);
  const std::int64_t allocated = cuda_calls("cuMemAlloc");
  Binding binding = must(
      executable_->bind(on_->arguments(), Workspace::owned(), kKeptAddresses, nullptr, &schedule));
  EXPECT_EQ(bytes(), before + kTurns);
  EXPECT_EQ(cuda_calls("cuMemAlloc"), allocated + 1);
  EXPECT_OK(binding.execute(nullptr));
  EXPECT_OK(binding.use_schedule(nullptr));
  expect_right(*on_, binding);
}

TEST_F(Workspaces, OfTheCallerStay) {
  load(standin::plan_of(plan::testing::scheduled_program()));
  Schedule schedule = must(Schedule::make(*executable_));
  const cuda::DeviceBuffer given = must(cuda::DeviceBuffer::allocate(
      executable_->device(), static_cast<std::size_t>(executable_->workspace_bytes())));
  const std::int64_t before = bytes();
  for (const Workspace& workspace : {Workspace::of(given.data()), Workspace::stream_ordered()}) {
    Binding binding = must(executable_->bind(on_->arguments(), workspace));
    for (int i = 0; i < 2; ++i) {
      EXPECT_OK(binding.use_schedule(&schedule));
      EXPECT_OK(schedule.build(binding, {}, nullptr));
      EXPECT_OK(binding.execute(nullptr));
      EXPECT_OK(binding.use_schedule(nullptr));
      expect_right(*on_, binding);
      EXPECT_EQ(bytes(), before);
    }
  }
}

// Memory that is not there leaves the binding with its own schedule, or with the caller's.
TEST_F(Workspaces, ThatCannotBeAllocatedChangeNothing) {
  load(standin::plan_of(plan::testing::scheduled_program()));
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = must(executable_->bind(on_->arguments()));
  script_cuda(standin::fail_nth("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(binding.use_schedule(&schedule).ok());
  expect_right(*on_, binding);
  Binding with = must(
      executable_->bind(on_->arguments(), Workspace::owned(), kKeptAddresses, nullptr, &schedule));
  EXPECT_OK(schedule.build(with, {}, nullptr));
  script_cuda(standin::fail_nth("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(with.use_schedule(nullptr).ok());
  EXPECT_OK(with.execute(nullptr));
  EXPECT_OK(with.use_schedule(nullptr));
  expect_right(*on_, with);
}

// Graphs of a binding are valid until its next one, whatever schedule it uses meanwhile.
TEST_F(Workspaces, OfGraphsStayUntilTheNextOne) {
  load(standin::plan_of(plan::testing::scheduled_program()));
  Schedule schedule = must(Schedule::make(*executable_));
  for (const Workspace& workspace : {Workspace::owned(), Workspace::stream_ordered()}) {
    Binding binding = must(executable_->bind(on_->arguments(), workspace));
    EXPECT_OK(schedule.build(binding, {}, nullptr));
    EXPECT_OK(binding.use_schedule(&schedule));
    (void)must(binding.graph());
    const std::int64_t before = bytes();
    EXPECT_OK(binding.use_schedule(nullptr));
    (void)must(binding.graph());
    EXPECT_GE(bytes(), before + kAll);
    expect_right(*on_, binding);
  }
}

}  // namespace
}  // namespace attn::execute
