#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan::schedule_validate_tests {
namespace {

std::string schedule_refusal(const std::function<void(Program&, KernelStep&, Schedule&)>& change) {
  Program program = testing::scheduled_program();
  auto& step = std::get<KernelStep>(program.steps[0]);
  change(program, step, *step.schedule);
  const Status status = validate(program);
  return status.ok() ? "accepted" : status.error().message;
}

TEST(ValidateProgram, AScheduleHasTensorsOfItsSizes) {
  EXPECT_EQ(schedule_refusal([](auto&...) {}), "accepted");
  const char* sizes = "step 0: has a schedule of invalid sizes";
  const char* other = "step 0: has a schedule whose sizes are not those of its tensors";
  const std::pair<std::function<void(Schedule&)>, const char*> changes[] = {
      {[](auto& s) { s.slots = 0; }, "step 0: has a schedule of 0 slots"},
      {[](auto& s) { s.slots = 65535; }, "step 0: has a schedule of 65535 slots"},
      {[](auto& s) { s.slot_words = 0; }, sizes},
      {[](auto& s) { s.slot_elements = INT64_MAX; }, sizes},
      {[](auto& s) { s.sequences = 0; }, sizes},
      {[](auto& s) { s.units = -1; }, sizes},
      {[](auto& s) { s.tile_rows = 0; }, sizes},
      {[](auto& s) { s.tile_keys = 0; }, sizes},
      {[](auto& s) { s.slots = 3; }, other},
      {[](auto& s) { s.slot_words = 17; }, other},
      {[](auto& s) { s.slot_elements = 33; }, other},
  };
  for (const auto& [change, what] : changes) {
    EXPECT_EQ(schedule_refusal([&](auto&, auto&, auto& s) { change(s); }), what);
  }
  EXPECT_EQ(schedule_refusal([](auto& p, auto&, auto&) { p.internals[1].dims = {7}; }), other);
  EXPECT_EQ(schedule_refusal([](auto& p, auto&, auto&) { p.internals[2].dtype = DType::i32; }),
            "step 0: has a schedule in \"parts\", which is not internal or of another type");
  EXPECT_EQ(schedule_refusal([](auto&, auto&, auto& s) { s.tensor = "x"; }),
            "step 0: has a schedule in \"x\", which is not internal or of another type");
  EXPECT_EQ(schedule_refusal([](auto&, auto&, auto& s) { s.parts = "o"; }),
            "step 0: has a schedule in \"o\", which is not internal or of another type");
  EXPECT_EQ(schedule_refusal([](auto&, auto&, auto& s) { s.tensor = "turns"; }),
            "step 0: has a schedule in \"turns\", which it does not write");
  EXPECT_EQ(schedule_refusal([](auto&, auto&, auto& s) { s.options = s.tensor; }),
            "step 0: has a schedule with options in \"schedule\", which is neither zeroed nor made "
            "at load");
}

TEST(ValidateProgram, AScheduleIsMadeOfWhatIsBound) {
  const auto refusal = [](const std::function<void(KernelStep&)>& change) {
    return schedule_refusal([&](auto&, auto& step, auto&) { change(step); });
  };
  EXPECT_EQ(refusal([](auto& s) { s.launches[0].arguments.emplace_back(TensorOperand{"turns"}); }),
            "step 0: has a schedule that is made with \"turns\", which is not bound");
  EXPECT_EQ(refusal([](auto& s) { s.launches[0].arguments.emplace_back(TensorOperand{"o"}); }),
            "step 0: has a schedule that is made with \"o\", which is not bound");
  EXPECT_EQ(refusal([](auto& s) { std::swap(s.launches[0].arguments, s.launches[1].arguments); }),
            "step 0: has a schedule in \"options\", which its first launch does not have");
  EXPECT_EQ(refusal([](auto& s) { s.launches[1].arguments[0] = TensorOperand{"options"}; }),
            "step 0: has a schedule that no later launch has");
  const auto with = [](const char* name, bool once) {
    return schedule_refusal([&](Program& program, KernelStep& step, auto&) {
      program.internals.push_back(
          {name, TensorRole::internal, DType::i32, {2}, {1}, kInternalAlignment});
      step.launches[0].arguments.emplace_back(TensorOperand{name});
      const DeriveStep derive{once, {name}, {"i"}, {}, "source"};
      program.steps.insert(program.steps.begin(), derive);
    });
  };
  EXPECT_EQ(with("made", true), "accepted");
  EXPECT_EQ(with("made", false),
            "step 1: has a schedule that is made with \"made\", which is not bound");
}

TEST(ValidateProgram, AProgramHasOneSchedule) {
  Program program = testing::scheduled_program();
  EXPECT_EQ(scheduled_step(program), &std::get<KernelStep>(program.steps[0]));
  EXPECT_EQ(scheduled_step(testing::kernel_program()), nullptr);
  KernelStep second = std::get<KernelStep>(program.steps[0]);
  for (const char* output : {"o", "lse"}) {
    std::erase(second.outputs, output);
    std::erase_if(second.launches[1].arguments, [output](const KernelArgument& argument) {
      return tensor_of(argument) != nullptr && tensor_of(argument)->name == output;
    });
  }
  program.steps.emplace_back(second);
  EXPECT_EQ(validate(program).error().message, "step 1: has a schedule, as a step before");
  std::get<KernelStep>(program.steps[1]).schedule.reset();
  EXPECT_TRUE(validate(program).ok()) << validate(program).error().message;
  second.turns = 2;
  std::get<KernelStep>(program.steps[0]).schedule.reset();
  program.steps[1] = second;
  EXPECT_EQ(validate(program).error().message, "step 1: has a schedule in a loop");
}

}  // namespace
}  // namespace attn::plan::schedule_validate_tests
