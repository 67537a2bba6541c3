// Tests schedules that are made once for many executes, on the stand-ins: their kernels compute
// digests of what they read, so a schedule that another one should have made gives another o.
#include "runtime/execute/schedule.h"

#include <cuda.h>

#include <array>
#include <cstring>
#include <functional>
#include <sstream>

#include "runtime/cuda/stream.h"
#include "runtime/plan/schedule_options.h"
#include "tests/standin/work.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using standin::Case;
using ::testing::HasSubstr;

constexpr std::size_t kQ = 0, kO = 3, kLse = 4, kLengths = 5;  // tensors of the program
constexpr std::int32_t kWindow = 5;

class Schedules : public WithCase {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    load(standin::plan_of(plan::testing::scheduled_program()));
    count_ = must(cuda::DeviceBuffer::allocate(executable_->device(), 2 * sizeof(std::int32_t)));
  }
  void TearDown() override {
    count_ = {};
    WithCase::TearDown();
  }

  // The words of the options when the schedule is made.
  static plan::ScheduleOptions options(const ScheduleSettings& settings, std::int64_t slots,
                                       std::int64_t blocks = 0) {
    plan::ScheduleOptions words{};
    words.most_parts = static_cast<int>(settings.max_parts);
    words.split_keys = static_cast<int>(settings.split_keys);
    words.blocks = static_cast<int>(blocks);
    words.slots = static_cast<int>(slots);
    return words;
  }
  // o, as the kernels compute it on the host with this schedule of that case's lengths.
  std::vector<std::byte> expected_o(const Case& lengths_of, const Case& on,
                                    const plan::ScheduleOptions& words) const {
    const standin::Kernels kernels = *standin::parse_kernels(plan_.kernels[0]);
    std::array<std::byte, 48> option_words{};  // of which the last are counters
    std::memcpy(option_words.data(), &words, sizeof words);
    std::array<std::int32_t, 64> schedule{};
    std::array<float, 128> parts{};
    std::array<std::int32_t, 4> turns{};
    std::vector<std::byte> o(192 * 2), lse(24 * 4);
    std::int32_t window = kWindow;
    float cap = 1.25;
    void* const making[] = {lengths_of.addresses()[kLengths], &window, option_words.data(),
                            schedule.data()};
    standin::run(kernels.at("schedule"), making);
    void* const using_it[] = {schedule.data(), parts.data(), turns.data(), on.addresses()[kQ],
                              o.data(),        lse.data(),   &cap};
    standin::run(kernels.at("scheduled"), using_it);
    return o;
  }
  static void expect_o(const Case& on, const std::vector<std::byte>& wanted) {
    const auto* o = static_cast<const std::byte*>(on.addresses()[kO]);  // the host's memory
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), o));
  }
  Binding bind(Case& on, Workspace workspace = Workspace::owned()) {
    on.set_param("window", kWindow);
    on.set_param("cap", 1.25);
    return must(executable_->bind(on.arguments(), workspace));
  }
  // The kernels that are launched by what `work` enqueues.
  static std::vector<std::string> launches(const std::function<void()>& work) {
    const std::size_t before = standin::log_of(standin::cuda().control).size();
    standin::cuda().control.record(1);
    work();
    standin::cuda().control.record(0);
    std::vector<std::string> names;
    std::istringstream log(standin::log_of(standin::cuda().control).substr(before));
    for (std::string line; std::getline(log, line);) {
      if (line.starts_with("cuLaunchKernelEx "))
        names.push_back(line.substr(line.find(' ', 17) + 1));
    }
    return names;
  }
  static std::string refusal(const Status& status) {
    return status.ok() ? "accepted" : status.error().message;
  }

  cuda::DeviceBuffer count_;
};

TEST_F(Schedules, AreMadeOnceForManyBindings) {
  Case second = must(Case::make(executable_->device(), plan_, 2));
  Binding first_layer = bind(*on_), second_layer = bind(second);
  expect_right(*on_, first_layer);
  Schedule schedule = must(Schedule::make(*executable_));
  EXPECT_EQ(schedule.slots(), 4);
  EXPECT_OK(first_layer.use_schedule(&schedule));
  EXPECT_OK(second_layer.use_schedule(&schedule));
  EXPECT_OK(on_->poison());
  EXPECT_EQ(launches([&] {
              EXPECT_OK(schedule.build(first_layer, {}, nullptr));
              EXPECT_OK(first_layer.execute(nullptr));
              EXPECT_OK(second_layer.execute(nullptr));
            }),
            (std::vector<std::string>{"schedule", "scheduled", "scheduled"}));
  expect_o(*on_, expected_o(*on_, *on_, options({}, 4)));
  expect_o(second, expected_o(*on_, second, options({}, 4)));

  EXPECT_OK(second_layer.use_schedule(nullptr));
  EXPECT_EQ(launches([&] { expect_right(second, second_layer); }),
            (std::vector<std::string>{"schedule", "scheduled overlapping"}));
}

TEST_F(Schedules, HaveOptions) {
  const ScheduleSettings settings{
      .max_parts = 3, .split_keys = 2, .sm_margin = 3, .capacity_rows = 6, .capacity_keys = 10};
  Schedule schedule = must(Schedule::make(*executable_, settings));
  EXPECT_GT(schedule.slots(), 4);
  Binding binding = bind(*on_);
  EXPECT_OK(binding.use_schedule(&schedule));
  plan::ScheduleOptions words = options(settings, schedule.slots(), 8 - 3);
  for (const std::int64_t sequences : {-1, 0, 1, 2}) {
    EXPECT_OK(schedule.build(binding, {nullptr, sequences}, nullptr));
    EXPECT_OK(binding.execute(nullptr));
    words.sequences = static_cast<int>(sequences + 1);
    expect_o(*on_, expected_o(*on_, *on_, words));
  }
  words.sequences = 0;
  const auto* address = static_cast<const std::int32_t*>(count_.data());
  words.sequences_at = address;
  EXPECT_OK(schedule.build(binding, {address}, nullptr));
  EXPECT_OK(binding.execute(nullptr));
  expect_o(*on_, expected_o(*on_, *on_, words));
}

// Counters behind the options are zeroed, and the counters of the later launch, by each.
TEST_F(Schedules, ZeroWhatTheirLaunchesCountWith) {
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = bind(*on_);
  const std::int64_t before = cuda_calls("cuMemsetD8Async");
  EXPECT_OK(schedule.build(binding, {}, nullptr));
  EXPECT_EQ(cuda_calls("cuMemsetD8Async"), before + 1);
  EXPECT_OK(binding.execute(nullptr));
  EXPECT_EQ(cuda_calls("cuMemsetD8Async"), before + 3) << "options and turns";
  EXPECT_OK(binding.use_schedule(&schedule));
  EXPECT_OK(binding.execute(nullptr));
  EXPECT_EQ(cuda_calls("cuMemsetD8Async"), before + 4) << "turns alone";
}

TEST_F(Schedules, AreCapturedTheFirstTimeToo) {
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = bind(*on_);
  EXPECT_OK(binding.use_schedule(&schedule));
  {
    const cuda::Stream stream = must(cuda::Stream::create(executable_->device()));
    const std::int64_t live = standin::live().bytes;
    const cuda::Graph graph =
        must(cuda::Graph::capture(executable_->device(), [&](void* on) -> Status {
          ATTN_RETURN_IF_ERROR(
              schedule.build(binding, {static_cast<const std::int32_t*>(count_.data())}, on));
          return binding.execute(on);
        }));
    EXPECT_EQ(standin::live().bytes, live);
    plan::ScheduleOptions words = options({}, 4);
    words.sequences_at = static_cast<const std::int32_t*>(count_.data());
    for (const std::int32_t length : {1, 2}) {
      *static_cast<std::int32_t*>(on_->addresses()[kLengths]) = length;
      EXPECT_OK(on_->poison());
      EXPECT_OK(graph.launch(stream.handle()));
      EXPECT_OK(stream.synchronize());
      expect_o(*on_, expected_o(*on_, *on_, words));
    }
  }
}

TEST_F(Schedules, AreOfGraphsAndWorkspacesOfEveryKind) {
  Schedule schedule = must(Schedule::make(*executable_));
  for (const Workspace& workspace : {Workspace::owned(), Workspace::stream_ordered()}) {
    Binding binding = bind(*on_, workspace);
    EXPECT_OK(binding.use_schedule(&schedule));
    EXPECT_OK(schedule.build(binding, {}, nullptr));
    EXPECT_OK(binding.execute(nullptr));
    EXPECT_EQ(launches([&] { (void)must(binding.graph()); }),
              (std::vector<std::string>{"scheduled"}));
    Case other = must(Case::make(executable_->device(), plan_, 3));
    EXPECT_OK(binding.set_addresses(other.addresses()));
    CudaGraph graph = must(CudaGraph::capture(std::move(binding)));
    EXPECT_OK(other.poison());
    EXPECT_OK(graph.launch(nullptr));
    expect_o(other, expected_o(*on_, other, options({}, 4)));
  }
}

TEST_F(Schedules, LiveAsLongAsABindingThatUsesThem) {
  Binding binding = bind(*on_);
  {
    Schedule schedule = must(Schedule::make(*executable_));
    EXPECT_OK(binding.use_schedule(&schedule));
    EXPECT_OK(schedule.build(binding, {}, nullptr));
  }
  EXPECT_OK(binding.execute(nullptr));
  expect_o(*on_, expected_o(*on_, *on_, options({}, 4)));
  const std::int64_t bytes = standin::live().bytes;
  EXPECT_OK(binding.use_schedule(nullptr));
  EXPECT_LT(standin::live().bytes, bytes);
}

TEST_F(Schedules, AreBuiltBeforeTheyAreUsed) {
  Schedule schedule = must(Schedule::make(*executable_));
  EXPECT_EQ(must(schedule.flags(nullptr)), 0u);
  Binding binding = bind(*on_);
  EXPECT_OK(binding.use_schedule(&schedule));
  EXPECT_EQ(refusal(binding.execute(nullptr)), "the schedule of the binding was not built yet");
  EXPECT_OK(schedule.build(binding, {}, nullptr));
  EXPECT_OK(binding.execute(nullptr));
}

// Word 3 of what the kernel writes, here a digest.
TEST_F(Schedules, SayWhatDidNotFit) {
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = bind(*on_);
  EXPECT_OK(schedule.build(binding, {}, nullptr));
  const standin::Kernels kernels = *standin::parse_kernels(plan_.kernels[0]);
  std::array<std::byte, 48> words{};
  const plan::ScheduleOptions given = options({}, 4);
  std::memcpy(words.data(), &given, sizeof given);
  std::array<std::uint32_t, 64> made{};
  std::int32_t window = kWindow;
  void* const places[] = {on_->addresses()[kLengths], &window, words.data(), made.data()};
  standin::run(kernels.at("schedule"), places);
  EXPECT_EQ(must(schedule.flags(nullptr)), made[3]);
}

TEST_F(Schedules, AreOfTheSamePlan) {
  const auto other = [&](const std::function<void(plan::KernelStep&)>& change) {
    plan::Program program = plan_.program;
    change(std::get<plan::KernelStep>(program.steps[0]));
    return must(Executable::load(runtime_, standin::plan_of(program)));
  };
  const Executable same = other([](auto&) {});
  const Executable text = other([](auto& step) { step.source += "other"; });
  const Executable grid = other([](auto& step) { step.launches[1].grid = {4, 1, 1}; });
  const Executable rows = other([](auto& step) { step.schedule->tile_rows = 4; });
  const Executable none = other([](auto& step) { step.schedule.reset(); });
  Binding binding = bind(*on_);
  Schedule schedule = must(Schedule::make(same));
  EXPECT_OK(schedule.build(binding, {}, nullptr));
  EXPECT_OK(binding.use_schedule(&schedule));
  for (const Executable* each : {&text, &grid, &rows}) {
    Schedule wrong = must(Schedule::make(*each));
    const char* what =
        "the binding cannot use this schedule: it is of a plan with other kernels "
        "or sizes";
    EXPECT_EQ(refusal(binding.use_schedule(&wrong)), what);
    EXPECT_EQ(refusal(wrong.build(binding, {}, nullptr)), what);
  }
  EXPECT_OK(binding.execute(nullptr));
  Binding without = must(none.bind(on_->arguments()));
  EXPECT_EQ(refusal(without.use_schedule(&schedule)),
            "the binding cannot use this schedule: its plan takes none");
  const auto refused = Schedule::make(none);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("takes no schedule"));
}

TEST_F(Schedules, SettingsThatCannotBeAreNamed) {
  const std::pair<ScheduleSettings, const char*> wrong[] = {
      {{.max_parts = -1}, "max_parts is -1; it must be 0 to 2^31 - 1"},
      {{.split_keys = std::int64_t{1} << 31}, "split_keys is 2147483648; it must be"},
      {{.sm_margin = 8}, "sm_margin is 8, but attention has 8 blocks of threads"},
      {{.split_keys = 2}, "split_keys is given without capacity_keys"},
      {{.split_keys = 2, .capacity_rows = 1 << 30, .capacity_keys = 1 << 30},
       "but there are at most 65534"},
  };
  for (const auto& [settings, text] : wrong) {
    const auto refused = Schedule::make(*executable_, settings);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(refused.error().message, HasSubstr(text));
  }
}

TEST_F(Schedules, CountsThatCannotBeAreRefused) {
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = bind(*on_);
  const auto given = [&](const SequenceCount& count) {
    return refusal(schedule.build(binding, count, nullptr));
  };
  EXPECT_EQ(given({nullptr, 3}), "the number of sequences is 3; it must be 0 to 2, or -1 for all");
  EXPECT_EQ(given({nullptr, -2}),
            "the number of sequences is -2; it must be 0 to 2, or -1 for all");
  const auto* address = static_cast<const std::int32_t*>(count_.data());
  EXPECT_EQ(given({address, 1}),
            "the number of sequences is given both as an address and as a number");
  EXPECT_EQ(given({reinterpret_cast<const std::int32_t*>(1), -1}),
            "the number of sequences is at an address that is not a multiple of 4 bytes");
  const std::int32_t on_host = 1;
  EXPECT_EQ(given({&on_host, -1}),
            "the number of sequences is in host memory but must be in memory of CUDA device 0");
  const auto one = must(cuda::DeviceBuffer::allocate(executable_->device(), sizeof(std::int32_t)));
  EXPECT_EQ(given({static_cast<const std::int32_t*>(one.data()), -1, SequenceCount::kBeside}),
            "the number of shared keys is in host memory but must be in memory of CUDA device 0");
  EXPECT_FALSE(binding.use_schedule(&schedule).ok() && binding.execute(nullptr).ok());
}

// As a number, or behind that of sequences, also for more kinds of builds than are kept.
TEST_F(Schedules, AreToldOfSharedKeys) {
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = bind(*on_);
  EXPECT_OK(binding.use_schedule(&schedule));
  const auto expect = [&](const SequenceCount& count) {
    plan::ScheduleOptions words = options({}, 4);
    words.sequences_at = count.address;
    words.sequences = count.address != nullptr ? 0 : static_cast<int>(count.number + 1);
    words.shared_keys = static_cast<int>(count.shared_keys);
    EXPECT_OK(on_->poison());
    EXPECT_OK(schedule.build(binding, count, nullptr));
    EXPECT_OK(binding.execute(nullptr));
    expect_o(*on_, expected_o(*on_, *on_, words));
  };
  const auto* address = static_cast<const std::int32_t*>(count_.data());
  for (int round = 0; round < 2; ++round) {
    expect({nullptr, 2, 4});
    expect({nullptr, 2, 0});
    expect({nullptr, SequenceCount::kAll, 4});
    expect({nullptr, 1, 4});
    expect({address, SequenceCount::kAll, 3});
    expect({address, SequenceCount::kAll, SequenceCount::kBeside});
    expect({address, SequenceCount::kAll, 0});
    expect({nullptr, 2, 5});
  }
  for (int keys = 1; keys < 20; ++keys) expect({nullptr, 2, keys});
  expect({address, SequenceCount::kAll, SequenceCount::kBeside});
  expect({nullptr, 1, 0});
}

TEST_F(Schedules, SharedKeysThatCannotBeAreRefused) {
  Binding binding = bind(*on_);
  const auto given = [&](Schedule& schedule, std::int64_t keys) {
    return refusal(schedule.build(binding, {nullptr, SequenceCount::kAll, keys}, nullptr));
  };
  Schedule free = must(Schedule::make(*executable_));
  EXPECT_EQ(given(free, -1),
            "the number of shared keys is beside that of sequences, but this has no address");
  for (const std::int64_t keys : {std::int64_t{-2}, std::int64_t{1} << 31}) {
    EXPECT_THAT(given(free, keys), HasSubstr("it must be 0 to 2^31 - 1, or -1"));
  }
  Schedule split = must(Schedule::make(*executable_, {.split_keys = 2, .capacity_keys = 10}));
  EXPECT_THAT(given(split, 4), HasSubstr("shared keys are given for a schedule with split_keys"));
  EXPECT_EQ(given(split, 0), "accepted");
}

TEST_F(Schedules, PlansThatCannotShareKeysSayWhy) {
  for (const char* why : {"", "keys are odd"}) {
    plan::Program program = plan::testing::scheduled_program();
    plan::Schedule& of = *std::get<plan::KernelStep>(program.steps[0]).schedule;
    of.shares_keys = false, of.unshared = why;
    load(standin::plan_of(program));
    Binding binding = bind(*on_);
    Schedule schedule = must(Schedule::make(*executable_));
    const Status refused = schedule.build(binding, {nullptr, SequenceCount::kAll, 4}, nullptr);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(refused.error().message,
              std::string("keys that sequences share cannot be read once by this plan, ") +
                  (*why == '\0' ? "which an earlier version compiled" : "since keys are odd"));
    EXPECT_OK(schedule.build(binding, {}, nullptr));
  }
}

TEST_F(Schedules, WhatFailsLeavesTheBindingAsItWas) {
  Binding binding = bind(*on_);
  for (const char* function : {"cuMemAlloc", "cuMemcpyHtoDAsync"}) {
    const std::int64_t bytes = standin::live().bytes;
    script_cuda(standin::fail_nth(function, 1, CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT_FALSE(Schedule::make(*executable_).ok()) << function;
    EXPECT_EQ(standin::live().bytes, bytes);
  }
  Schedule schedule = must(Schedule::make(*executable_));
  const SequenceCount count{static_cast<const std::int32_t*>(count_.data())};
  for (const char* function : {"cuMemsetD32Async", "cuMemsetD8Async", "cuLaunchKernelEx"}) {
    script_cuda(standin::fail_nth(function, 1, CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT_FALSE(schedule.build(binding, count, nullptr).ok()) << function;
  }
  expect_right(*on_, binding);
}

// No batch takes more slots than are computed for its sizes.
TEST(Slots, AreEnoughForEveryBatch) {
  plan::testing::Random random(7);
  for (int round = 0; round < 20000; ++round) {
    const auto up_to = [&](std::size_t most) {
      return static_cast<std::int64_t>(1 + random.below(most));
    };
    plan::Schedule schedule;
    schedule.sequences = up_to(6);
    schedule.units = up_to(3);
    schedule.tile_rows = up_to(4);
    schedule.tile_keys = up_to(3);
    const std::int64_t most_rows = up_to(12), most_keys = up_to(40);
    ScheduleSettings settings;
    settings.split_keys = up_to(12);
    settings.max_parts = random.chance(2) ? up_to(4) : 0;
    std::int64_t slots = 0;
    for (std::int64_t i = 0; i < schedule.sequences; ++i) {
      const std::int64_t rows = up_to(static_cast<std::size_t>(most_rows));
      const std::int64_t keys = random.chance(4) ? 0 : up_to(static_cast<std::size_t>(most_keys));
      settings.capacity_rows += rows;
      settings.capacity_keys += keys;
      const std::int64_t length =
          (settings.split_keys + schedule.tile_keys - 1) / schedule.tile_keys * schedule.tile_keys;
      const std::int64_t parts = (keys + length - 1) / length;
      const std::int64_t tiles = (rows + schedule.tile_rows - 1) / schedule.tile_rows;
      const std::int64_t most = settings.max_parts > 0 ? settings.max_parts : parts;
      if (std::min(parts, most) > 1) slots += schedule.units * tiles * std::min(parts, most);
    }
    settings.capacity_keys = std::max<std::int64_t>(1, settings.capacity_keys);
    ASSERT_GE(slots_for(schedule, settings, most_rows, most_keys), slots) << round;
    settings.capacity_rows = 0;
    ASSERT_GE(slots_for(schedule, settings, most_rows, most_keys), slots) << round;
  }
}

// Rows of 64 sequences that decode over 8 units, of 131072 keys together, in parts of 4096.
TEST(Slots, OfADecodeAreFew) {
  plan::Schedule schedule;
  schedule.sequences = 64;
  schedule.units = 8;
  schedule.tile_rows = 8;
  schedule.tile_keys = 128;
  const ScheduleSettings settings{.split_keys = 4096, .capacity_keys = 131072};
  EXPECT_EQ(slots_for(schedule, settings, 1, 65536), 8 * (32 + 32));
  EXPECT_EQ(slots_for(schedule, {.split_keys = 4096, .capacity_keys = 4096}, 1, 65536), 0);
  EXPECT_GT(
      slots_for(schedule, {.split_keys = 1, .capacity_rows = 1 << 30, .capacity_keys = 1 << 30},
                1 << 30, 1 << 30),
      plan::kMostSlots);
}

}  // namespace
}  // namespace attn::execute
