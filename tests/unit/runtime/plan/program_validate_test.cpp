#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/graph/extent.h"
#include "tests/unit/runtime/plan/program_text.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using ::testing::HasSubstr;

TEST(ValidateProgram, AcceptsTheSampleAndEveryRandomProgram) {
  EXPECT_TRUE(validate(testing::sample_program()).ok());
  testing::Random random(12);
  for (int round = 0; round < 100; ++round) {
    const Program program = testing::random_program(random);
    const Status status = validate(program);
    ASSERT_TRUE(status.ok()) << status.error().message << '\n' << to_text(program);
  }
}

TEST(ValidateProgram, AStepMayReadWhatAnEarlierOneWrote) {
  Program program = testing::sample_program();
  CudnnStep second = std::get<CudnnStep>(program.steps[0]);
  program.tensors.push_back(program.tensors[3]);
  program.tensors.back().name = "o2";
  program.tensors.push_back(program.tensors[4]);
  program.tensors.back().name = "lse2";
  second.operands[0].source = TensorOperand{"o"};
  second.operands[5].source = TensorOperand{"lse2"};
  second.operands[7].source = TensorOperand{"o2"};
  program.steps.emplace_back(second);
  EXPECT_TRUE(validate(program).ok()) << validate(program).error().message;
  std::swap(program.steps[0], program.steps[1]);
  ASSERT_FALSE(validate(program).ok());
  EXPECT_THAT(validate(program).error().message, HasSubstr("reads the output \"o\" before"));
}

std::string derived_refusal(const std::function<void(Program&)>& change) {
  Program program = testing::derived_program();
  change(program);
  const Status status = validate(program);
  return status.ok() ? "accepted" : status.error().message;
}

// Sums and products of sizes do not overflow: each tensor and the total are bounded.
TEST(ValidateProgram, InternalTensorsAreBoundedTogether) {
  const auto refusal_of = [](int count, std::vector<std::int64_t> dims,
                             std::vector<std::int64_t> strides) {
    return derived_refusal([&](Program& program) {
      for (int i = 0; i < count; ++i) {
        program.internals.push_back({"large" + std::to_string(i), TensorRole::internal, DType::i64,
                                     dims, strides, kInternalAlignment});
      }
    });
  };
  const auto side = std::int64_t{1} << 30;
  EXPECT_THAT(refusal_of(1, {side, side}, {side, 1}), HasSubstr("is too large"));
  EXPECT_THAT(refusal_of(1, {side, side}, {0, 0}), HasSubstr("is too large"));
  EXPECT_EQ(refusal_of(1, {side, side / 8}, {side / 8, 1}),
            "internal tensor \"large0\" is not completely written");
  EXPECT_EQ(refusal_of(3, {side, side / 8}, {side / 8, 1}),
            "tensor \"large1\" makes the internal tensors too large");
}

// The iota is stored in device memory when the plan is loaded.
TEST(ValidateProgram, NoMoreCountingNumbersThanAreRead) {
  const auto refusal_of = [](std::int64_t count) {
    Program program = testing::sample_program();
    CudnnStep& step = std::get<CudnnStep>(program.steps[0]);
    graph::Tensor& k = step.graph.tensors[1];
    k.dtype = DType::i32;
    step.operands[1].source = IotaOperand{count};
    EXPECT_EQ(*last_offset(k.dims, k.strides), 159);
    const Status status = validate(program);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(refusal_of(160), "accepted");
  EXPECT_THAT(refusal_of(159), HasSubstr("reads past the end of its iota"));
  EXPECT_THAT(refusal_of(1 << 29),
              HasSubstr("is bound to an iota of 536870912 elements but reads 160"));
}

TEST(ValidateProgram, NamesInMessagesAreEscaped) {
  EXPECT_EQ(derived_refusal([](Program& p) { p.tensors[0].name = p.tensors[1].name = "\x1b[2J"; }),
            "tensor \"\\x1b[2J\" is declared twice");
}

DeriveStep& derive(Program& program, std::size_t index) {
  return std::get<DeriveStep>(program.steps[index]);
}

TEST(ValidateProgram, DeriveStepsMakeInternalTensorsInOrder) {
  EXPECT_EQ(derived_refusal([](auto&) {}), "accepted");
  EXPECT_EQ(derived_refusal([](auto& p) { std::swap(p.steps[0], p.steps[1]); }),
            "step 0: reads \"places\" before it is written");
  EXPECT_EQ(derived_refusal([](auto& p) { p.steps.erase(p.steps.begin() + 1); }),
            "internal tensor \"bias\" is not completely written");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).once = true; }),
            "step 1: runs once but reads \"table\"");
  EXPECT_EQ(derived_refusal([](auto& p) {
              derive(p, 1).once = true;
              derive(p, 1).inputs = {ParamOperand{"cap"}};
            }),
            "step 1: runs once but reads a param");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).inputs = {ParamOperand{"x"}}; }),
            "step 1: reads an unknown param");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).inputs = {TensorOperand{"x"}}; }),
            "step 1: reads unknown tensor \"x\"");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).inputs = {IotaOperand{3}}; }),
            "step 1: reads an input that is neither a tensor nor a param");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).outputs = {"table"}; }),
            "step 1: derives \"table\", which is neither an output nor internal");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).outputs = {"places"}; }),
            "step 1: writes \"places\", which is made at load");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).expressions.clear(); }),
            "step 1: does not have one expression per output");
  EXPECT_EQ(derived_refusal([](auto& p) { derive(p, 1).source.clear(); }), "step 1: has no source");
  EXPECT_EQ(derived_refusal([](auto& p) {
              p.internals[1].dims = {1 << 20, 1 << 20};
            }),
            "tensor \"bias\" is internal but not dense row-major");
  EXPECT_EQ(derived_refusal([](auto& p) {
              p.internals[1].dims = {1 << 20, 1 << 20};
              p.internals[1].strides = {1 << 20, 1};
            }),
            "step 1: derives \"bias\", which is too large");
  EXPECT_EQ(derived_refusal([](auto& p) { p.internals[1].dtype = DType::u8; }),
            "tensor \"bias\" is internal but is neither a float, i32 nor i64");
  EXPECT_EQ(derived_refusal([](auto& p) { p.internals[0].role = TensorRole::captured; }),
            "tensor \"places\" is internal but has another role");
  EXPECT_EQ(derived_refusal([](auto& p) { p.tensors[5].role = TensorRole::internal; }),
            "tensor \"table\" is internal but listed as bound");
  EXPECT_EQ(derived_refusal([](auto& p) { p.internals[1].name = "places"; }),
            "tensor \"places\" is declared twice");
}

TEST(ValidateProgram, AChecksInputsAreBound) {
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->faults.clear(); }),
            "check: has no faults or too many");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->quick = 0; }),
            "check: has an invalid thread count");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->quick = kMostChecked + 1; }),
            "check: has an invalid thread count");
  EXPECT_EQ(derived_refusal([](auto& p) {
              p.check->scores = {3, 5};
            }),
            "check: has invalid score dims");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->scores[1] = 0; }),
            "check: has invalid score dims");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->scores[1] = kMostChecked; }),
            "check: has invalid score dims");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->source.clear(); }), "check: has no source");
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->inputs[1] = ParamOperand{"x"}; }),
            "check: reads an unknown param");
  for (const char* name : {"x", "o", "places"}) {
    EXPECT_EQ(derived_refusal([name](auto& p) { p.check->inputs[0] = TensorOperand{name}; }),
              std::string("check: reads \"") + name + "\", which is not bound");
  }
  EXPECT_EQ(derived_refusal([](auto& p) { p.check->inputs[0] = IotaOperand{1}; }),
            "check: reads an input that is neither a tensor nor a param");
}

TEST(ValidateProgram, ControlTensorsAddressOthers) {
  Program program = testing::controlled_program();
  ASSERT_TRUE(validate(program).ok()) << validate(program).error().message;
  program.tensors[0].addressed_by = "lengths_kv";
  EXPECT_EQ(validate(program).error().message, "tensor \"q\" is not addressed by a control tensor");
  program.tensors[0].addressed_by = "x";
  EXPECT_EQ(validate(program).error().message, "tensor \"q\" is not addressed by a control tensor");
}

TEST(ValidateProgram, KernelsMayMakeOutputsAndCudnnInternalTensors) {
  Program program = testing::sample_program();
  program.internals = {{"o.padded",
                        TensorRole::internal,
                        DType::bf16,
                        {2, 4, 3, 8},
                        {96, 24, 8, 1},
                        kInternalAlignment}};
  std::get<CudnnStep>(program.steps[0]).operands[7].source = TensorOperand{"o.padded"};
  EXPECT_EQ(validate(program).error().message, "output \"o\" is not completely written");
  program.steps.emplace_back(
      DeriveStep{false, {"o"}, {"a part"}, {TensorOperand{"o.padded"}}, "source"});
  EXPECT_TRUE(validate(program).ok());
  EXPECT_EQ(derived_elements(program, std::get<DeriveStep>(program.steps[1])), 2 * 4 * 3 * 8);
  EXPECT_EQ(internal_places(program, false).bytes, 512);
  EXPECT_EQ(internal_places(program, true).bytes, 0);
  std::get<DeriveStep>(program.steps[1]).once = true;
  std::get<DeriveStep>(program.steps[1]).inputs.clear();
  EXPECT_EQ(validate(program).error().message, "step 1: runs once but derives \"o\"");
}

TEST(ValidateProgram, WhatIsAmendedHasBeenMade) {
  Program program = testing::sample_program();
  DeriveStep amend{false, {"o"}, {"0"}, {}, "source", 12};
  EXPECT_EQ(derived_elements(program, amend), 12);
  program.steps.emplace_back(amend);
  EXPECT_TRUE(validate(program).ok());
  std::swap(program.steps[0], program.steps[1]);
  EXPECT_EQ(validate(program).error().message, "step 0: amends \"o\" before it is written");
  amend.amends = -1;
  program.steps = {program.steps[1], amend};
  EXPECT_EQ(validate(program).error().message, "step 1: amends with an invalid thread count");
}

std::string kernel_refusal(const std::function<void(KernelStep&)>& change) {
  Program program = testing::kernel_program();
  change(std::get<KernelStep>(program.steps[0]));
  const Status status = validate(program);
  return status.ok() ? "accepted" : status.error().message;
}

// Facts are computed with when they are printed.
TEST(ValidateProgram, FactsOfAKernelAreNumbersOfThings) {
  const std::function<void(KernelFacts&)> changes[] = {
      [](KernelFacts& f) { f.launch = 2; },
      [](KernelFacts& f) { f.launch = -1; },
      [](KernelFacts& f) { f.parts = 0; },
      [](KernelFacts& f) { f.tile = 0; },
      [](KernelFacts& f) { f.block = 0; },
      [](KernelFacts& f) { f.heads = 0; },
      [](KernelFacts& f) { f.depth = 0; },
      [](KernelFacts& f) { f.width = 0; },
      [](KernelFacts& f) { f.groups = 0; },
      [](KernelFacts& f) { f.stages = 0; },
      [](KernelFacts& f) { f.query_stages = -1; },
      [](KernelFacts& f) { f.items = 0; },
      [](KernelFacts& f) { f.patch_width = 8; },
      [](KernelFacts& f) { f.blocks->lists = 0; },
      [](KernelFacts& f) { f.divided = -1; },
      [](KernelFacts& f) { f.items = (std::int64_t{1} << 40) + 1; },
      [](KernelFacts& f) { f.blocks->skipped = -1; },
      [](KernelFacts& f) { f.blocks->full = INT64_MAX; },
  };
  for (const auto& change : changes) {
    EXPECT_EQ(kernel_refusal([&](auto& s) { change(*s.facts); }), "step 0: has invalid facts");
  }
  EXPECT_EQ(kernel_refusal([](auto& s) { s.facts.reset(); }), "accepted");
}

TEST(ValidateProgram, LaunchesAreWithinTheLimitsOfAGpu) {
  EXPECT_EQ(kernel_refusal([](auto&) {}), "accepted");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches[0].kernel = "f(int)"; }),
            "step 0: launches a kernel without a valid name");
  for (const std::int64_t extent : {std::int64_t{0}, std::int64_t{65536}}) {
    EXPECT_EQ(kernel_refusal([extent](auto& s) { s.launches[1].grid[1] = extent; }),
              "step 0: has an invalid grid");
  }
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[0].block = {128, 16, 1};
            }),
            "step 0: has an invalid block");
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[0].cluster = {4, 1, 1};
            }),
            "step 0: has an invalid cluster");  // does not divide the grid
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[0].cluster = {6, 2, 1};
            }),
            "step 0: has an invalid cluster");  // more than 8 blocks
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches[1].overlaps = true; }), "accepted");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches[0].overlaps = true; }),
            "step 0: has a first launch that overlaps another");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches[0].shared_bytes = (227 << 10) + 1; }),
            "step 0: takes 232449 bytes of shared memory");
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[1].arguments.resize(513, KernelArgument(TensorOperand{"o"}));
            }),
            "step 0: has too many arguments");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches.clear(); }),
            "step 0: has no launches or too many");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.launches.resize(65, s.launches[0]); }),
            "step 0: has no launches or too many");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.source.clear(); }), "step 0: has no source");
}

TEST(ValidateProgram, KernelStepsWriteWholeTensorsOnce) {
  EXPECT_EQ(kernel_refusal([](auto& s) { s.outputs.pop_back(); }),
            "step 0: reads \"lse\" before it is written");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.outputs.emplace_back("o"); }),
            "step 0: writes \"o\" a second time");
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[1].arguments.erase(s.launches[1].arguments.begin() + 1);
            }),
            "step 0: writes \"o\", which no launch has");
  EXPECT_EQ(kernel_refusal([](auto& s) {
              s.launches[0].arguments.erase(s.launches[0].arguments.begin() + 1);
            }),
            "step 0: zeroes \"counter\", which no launch has");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.outputs[0] = "q"; }),
            "step 0: reads \"partial\" before it is written");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.outputs.emplace_back("q"); }),
            "step 0: writes \"q\", which is neither an output nor internal");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.zeroed = {"o"}; }),
            "step 0: zeroes \"o\", which is not internal");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.zeroed.clear(); }),
            "step 0: reads \"counter\" before it is written");
  EXPECT_EQ(kernel_refusal([](auto& s) { s.turns = 2; }),
            "step 0: writes the output \"o\" in a loop");
}

TEST(ValidateProgram, ArgumentsOfKernelsStayInsideTheirTensors) {
  const auto argument = [](const KernelArgument& changed) {
    return kernel_refusal([&](auto& s) { s.launches[0].arguments.push_back(changed); });
  };
  EXPECT_EQ(argument(TensorOperand{"x"}), "step 0: reads unknown tensor \"x\"");
  EXPECT_EQ(argument(TensorOperand{"q", 191}), "accepted");
  EXPECT_EQ(argument(TensorOperand{"q", 192}), "step 0: reads past the end of \"q\"");
  EXPECT_EQ(argument(TensorOperand{"q", 0, 1}), "step 0: reads past the end of \"q\"");
  EXPECT_EQ(argument(ParamOperand{"x"}), "step 0: reads an unknown param");
  EXPECT_EQ(argument(ConstantOperand{DType::i32, 0.5}),
            "step 0: is an i32 constant with value 0.5");
}

TEST(ValidateProgram, TensorMapsFitTheirTensors) {
  const auto map = [](const std::function<void(TensorMapArgument&)>& change) {
    return kernel_refusal(
        [&](auto& s) { change(std::get<TensorMapArgument>(s.launches[0].arguments[0])); });
  };
  const char* size = "step 0: has a tensor map of invalid size";
  const char* alignment = "step 0: has a tensor map that is not aligned to 16 bytes";
  const char* swizzle = "step 0: has a tensor map of invalid swizzle";
  EXPECT_EQ(map([](auto& m) { m.dims.pop_back(); }), "step 0: has a tensor map of invalid rank");
  EXPECT_EQ(map([](auto& m) { m.dims[1] = 0; }), size);
  EXPECT_EQ(map([](auto& m) { m.box[1] = 257; }), size);
  EXPECT_EQ(map([](auto& m) { m.strides[0] = std::int64_t{1} << 40; }), size);
  EXPECT_EQ(map([](auto& m) { m.strides[0] = 36; }), alignment);
  EXPECT_EQ(map([](auto& m) { m.box[0] = 4; }), alignment);
  EXPECT_EQ(map([](auto& m) { m.tensor.offset = 4; }), alignment);
  EXPECT_EQ(map([](auto& m) { m.tensor.offset = std::int64_t{1} << 62; }),
            "step 0: reads past the end of \"q\"");
  EXPECT_EQ(map([](auto& m) { m.swizzle = 16; }), swizzle);
  EXPECT_EQ(map([](auto& m) { m.swizzle = 32; }), "accepted");
  EXPECT_EQ(map([](auto& m) {
              m.box[0] = 32;
              m.swizzle = 32;
            }),
            swizzle);
  EXPECT_EQ(map([](auto& m) { m.promotion = 128; }), "accepted");
  EXPECT_EQ(map([](auto& m) { m.promotion = 192; }),
            "step 0: has a tensor map of invalid promotion");
  EXPECT_EQ(map([](auto& m) { m.tensor.offset = 8; }), "step 0: reads past the end of \"q\"");
  EXPECT_EQ(map([](auto& m) { m.dims[3] = 3; }), "step 0: reads past the end of \"q\"");
}

TEST(ValidateProgram, WhatIsMadeAtLoadIsNotWrittenAgain) {
  const auto refusal = [](const std::function<void(Program&)>& change) {
    Program program = testing::derived_program();
    change(program);
    return validate(program).error().message;
  };
  const auto kernel = [](const std::string& output, const std::string& zeroed) {
    KernelStep step;
    if (!output.empty()) step.outputs = {output};
    if (!zeroed.empty()) step.zeroed = {zeroed};
    step.source = "//";
    step.launches = {
        {.kernel = "k", .arguments = {TensorOperand{"places"}, TensorOperand{"bias"}}}};
    return step;
  };
  EXPECT_EQ(refusal([&](auto& p) { p.steps[1] = kernel("bias", "places"); }),
            "step 1: zeroes \"places\", which is made at load");
  EXPECT_EQ(refusal([&](auto& p) {
              p.steps[1] = kernel("bias", "");
              std::get<KernelStep>(p.steps[1]).outputs.emplace_back("places");
            }),
            "step 1: writes \"places\", which is made at load");
  EXPECT_EQ(refusal([](auto& p) {
              derive(p, 1).outputs = {"places"};
              derive(p, 1).amends = 3;
            }),
            "step 1: writes \"places\", which is made at load");
}

// A loop of launches counts each of them.
TEST(ValidateProgram, LaunchesCountAsRuns) {
  Program program = testing::kernel_program();
  auto& step = std::get<KernelStep>(program.steps[0]);
  step.turns = kMostRuns / 2 + 1;
  EXPECT_EQ(validate(program).error().message, "step 0: has too many turns");
}

TEST(ValidateProgram, LoopsRunInTurns) {
  const Program program = testing::looping_program();
  ASSERT_TRUE(validate(program).ok()) << validate(program).error().message;
  std::vector<std::pair<std::size_t, std::int64_t>> order;
  for (const plan::Run& run : runs_of(program)) order.emplace_back(run.step, run.turn);
  using Order = std::vector<std::pair<std::size_t, std::int64_t>>;
  EXPECT_EQ(
      order,
      (Order{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {3, 1}, {4, 1}, {3, 2}, {4, 2}, {5, 0}}));
}

// The last product overwrites the loop's result.
TEST(ValidateProgram, InternalTensorsMayBeWrittenAgain) {
  Program program = testing::looping_program();
  CudnnStep again = std::get<CudnnStep>(program.steps[3]);
  again.turns = 1;
  again.operands[0].source = TensorOperand{"rows", 128};
  program.steps.emplace_back(again);
  EXPECT_TRUE(validate(program).ok()) << validate(program).error().message;
}

std::string loop_refusal(const std::function<void(CudnnStep&, DeriveStep&)>& change) {
  Program program = testing::looping_program();
  change(std::get<CudnnStep>(program.steps[3]), std::get<DeriveStep>(program.steps[4]));
  const Status status = validate(program);
  return status.ok() ? "accepted" : status.error().message;
}

TEST(ValidateProgram, OperandsOfLoopsStayInside) {
  const auto product = [](TensorOperand operand) {
    return loop_refusal([&](CudnnStep& step, DeriveStep&) { step.operands[0].source = operand; });
  };
  const auto kernel = [](TensorOperand operand) {
    return loop_refusal([&](CudnnStep&, DeriveStep& step) { step.inputs[1] = operand; });
  };
  const std::string smaller = "step 3: tensor %1 is bound to \"rows\", which is smaller";
  EXPECT_EQ(product({"rows", 0, 64}), "accepted");
  EXPECT_EQ(product({"rows", 0, 72}), smaller);
  EXPECT_EQ(product({"rows", 64, 64}), smaller);
  EXPECT_EQ(product({"rows", 64, -64}), smaller);
  EXPECT_EQ(product({"rows", 0, std::int64_t{1} << 62}), smaller);
  EXPECT_EQ(product({"rows", 0, 4}),
            "step 3: tensor %1 is bound to \"rows\", which guarantees less alignment");
  EXPECT_EQ(kernel({"first", 0, 1}), "accepted");
  EXPECT_EQ(kernel({"first", 1, 1}), "step 4: reads past the end of \"first\"");
  EXPECT_EQ(kernel({"first", 0, -1}), "step 4: reads past the end of \"first\"");
}

TEST(ValidateProgram, RefusesLoopsThatMakeNoSense) {
  const auto turns = [](std::int64_t product, std::int64_t kernel) {
    return loop_refusal([&](CudnnStep& first, DeriveStep& second) {
      first.turns = product;
      second.turns = kernel;
    });
  };
  EXPECT_EQ(turns(0, 3), "step 3: has fewer than 1 turn");
  EXPECT_EQ(turns(-1, 3), "step 3: has fewer than 1 turn");
  EXPECT_EQ(turns(3, kMostRuns), "step 4: has too many turns");
  EXPECT_EQ(turns(1, 3), "step 3: tensor %1 is bound to \"rows\", which is smaller");
  EXPECT_EQ(loop_refusal([](CudnnStep&, DeriveStep& step) { step.once = true; }),
            "step 4: runs once but is in a loop");
  EXPECT_EQ(loop_refusal([](CudnnStep& step, DeriveStep&) {
              step.operands[2].source = TensorOperand{"tile", 0, 8};
            }),
            "step 3: tensor %3 is bound to \"tile\", which is smaller");
  Program program = testing::looping_program();
  std::get<CudnnStep>(program.steps[0]).turns = 2;
  EXPECT_THAT(validate(program).error().message, HasSubstr("\" in a loop"));
}

TEST(ProgramJson, KeepsLoops) {
  const Program program = testing::looping_program();
  const auto read = program_from_json(to_json(program));
  ASSERT_TRUE(read.ok()) << read.error().to_text();
  EXPECT_EQ(*read, program);
  Program other = program;
  std::get<DeriveStep>(other.steps[4]).inputs[1] = TensorOperand{"first"};
  EXPECT_NE(canonical_text(other), canonical_text(program));
  other = program;
  std::get<CudnnStep>(other.steps[3]).turns = 2;
  EXPECT_NE(canonical_text(other), canonical_text(program));
}

struct Refusal {
  const char* name;
  std::function<void(Program&)> change;
  const char* message;
};

CudnnStep& step(Program& program) { return std::get<CudnnStep>(program.steps[0]); }

Operand& operand(Program& program, std::size_t index) { return step(program).operands[index]; }

class ValidateProgramRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ValidateProgramRefuses, AndNamesThePlace) {
  Program program = testing::sample_program();
  GetParam().change(program);
  const Status status = validate(program);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
}

// Operands of the sample: 0 q, 1 k, 2 scale, 3 cap (a param), 4 -inf, 5 lse, 6 v, 7 o.
INSTANTIATE_TEST_SUITE_P(
    Programs, ValidateProgramRefuses,
    ::testing::Values(
        Refusal{"NoSteps", [](auto& p) { p.steps.clear(); }, "has no steps"},
        Refusal{"Graph", [](auto& p) { step(p).graph.nodes.clear(); },
                "step 0: the graph has no nodes"},
        Refusal{"NamelessTensor", [](auto& p) { p.tensors[0].name.clear(); }, "has no name"},
        Refusal{"TensorTwice", [](auto& p) { p.tensors[1].name = "q"; }, "\"q\" is declared twice"},
        Refusal{"Rank",
                [](auto& p) {
                  p.tensors[0].dims = {2, 4};
                  p.tensors[0].strides = {4, 1};
                },
                "\"q\" has rank 2, not 4"},
        Refusal{"StatsRank",
                [](auto& p) {
                  p.tensors[4].dims.push_back(1);
                  p.tensors[4].strides.push_back(1);
                },
                "\"lse\" has rank 4, not 3"},
        Refusal{"Strides", [](auto& p) { p.tensors[0].strides.pop_back(); },
                "4 dims and 3 strides"},
        Refusal{"Dim", [](auto& p) { p.tensors[0].dims[1] = 0; }, "dimension below 1"},
        Refusal{"TooLarge", [](auto& p) { p.tensors[0].strides[1] = std::int64_t{1} << 62; },
                "too large"},
        Refusal{"TooManyElements",
                [](auto& p) {
                  p.tensors[0].dims = {1, 1, 1 << 30, 1 << 30};
                  p.tensors[0].strides = {0, 0, 0, 0};
                },
                "\"q\" has a dimension below 1, a stride below 0, or is too large"},
        Refusal{"OffsetThatOverflowsInBytes",
                [](auto& p) {
                  operand(p, 0).source = TensorOperand{"q", std::int64_t{1} << 62};
                },
                "bound to \"q\", which is smaller"},
        Refusal{"Alignment", [](auto& p) { p.tensors[0].alignment = 24; }, "alignment 24"},
        Refusal{"NamelessParam", [](auto& p) { p.params[0].name.clear(); }, "has no name"},
        Refusal{"ParamTwice", [](auto& p) { p.params.push_back(p.params[0]); }, "declared twice"},
        Refusal{"ParamNamedLikeATensor",
                [](auto& p) {
                  p.params.push_back({"q", DType::f32});
                },
                "has the name of a tensor"},
        Refusal{"ParamType", [](auto& p) { p.params[0].dtype = DType::f64; },
                "neither f32 nor i32"},
        Refusal{"UnknownUid", [](auto& p) { operand(p, 0).uid = 77; }, "%77 is not in the graph"},
        Refusal{"BoundTwice", [](auto& p) { operand(p, 1).uid = 1; }, "%1 is bound twice"},
        Refusal{"Unbound", [](auto& p) { step(p).operands.pop_back(); }, "%23 has no operand"},
        Refusal{"VirtualBound",
                [](auto& p) {
                  step(p).operands.push_back({6, TensorOperand{"q"}});
                },
                "%6 is not in device memory"},
        Refusal{"VirtualScalar",
                [](auto& p) {
                  step(p).operands.push_back({6, ConstantOperand{DType::f32, 1}});
                },
                "%6 is bound to a scalar but is not one"},
        Refusal{"ScalarBoundToTensor", [](auto& p) { operand(p, 2).source = TensorOperand{"q"}; },
                "%3 is not in device memory"},
        Refusal{"TensorBoundToScalar",
                [](auto& p) {
                  operand(p, 0).source = ConstantOperand{DType::bf16, 1};
                },
                "%1 is bound to a scalar but is not one"},
        Refusal{"UnknownTensor", [](auto& p) { operand(p, 0).source = TensorOperand{"x"}; },
                "bound to unknown tensor \"x\""},
        Refusal{"CountingInAScalar", [](auto& p) { operand(p, 3).source = IotaOperand{8}; },
                "is not in device memory"},
        Refusal{"UnknownParam", [](auto& p) { operand(p, 3).source = ParamOperand{"x"}; },
                "unknown param"},
        Refusal{"TensorType", [](auto& p) { p.tensors[0].dtype = DType::f16; },
                "bound to \"q\", which has a different type"},
        Refusal{"TensorSize", [](auto& p) { p.tensors[1].dims[0] = 1; },
                "bound to \"k\", which is smaller"},
        Refusal{"TensorAlignment", [](auto& p) { p.tensors[0].alignment = 8; },
                "bound to \"q\", which guarantees less alignment"},
        Refusal{"ConstantType",
                [](auto& p) {
                  operand(p, 2).source = ConstantOperand{DType::i32, 1};
                },
                "constant of another type"},
        Refusal{"ConstantNan",
                [](auto& p) {
                  operand(p, 2).source = ConstantOperand{DType::f32, std::nan("")};
                },
                "NaN constant"},
        Refusal{"ConstantFraction",
                [](auto& p) {
                  step(p).graph.tensors[2].dtype = DType::i32;
                  operand(p, 2).source = ConstantOperand{DType::i32, 0.5};
                },
                "i32 constant with value 0.5"},
        Refusal{"ConstantRange",
                [](auto& p) {
                  step(p).graph.tensors[2].dtype = DType::i32;
                  operand(p, 2).source = ConstantOperand{DType::i32, 2147483648.0};
                },
                "i32 constant with value 2147483648"},
        Refusal{"ConstantWide",
                [](auto& p) {
                  step(p).graph.tensors[2].dtype = DType::f64;
                  operand(p, 2).source = ConstantOperand{DType::f64, 1};
                },
                "constant of type f64"},
        Refusal{"ParamOfAnotherType", [](auto& p) { p.params[0].dtype = DType::i32; },
                "param of another type"},
        Refusal{"WritesAnInput", [](auto& p) { p.tensors[3].role = TensorRole::captured; },
                "%23 writes the input \"o\""},
        Refusal{"ReadsAnOutput", [](auto& p) { p.tensors[2].role = TensorRole::output; },
                "%22 reads the output \"v\" before it is written"},
        Refusal{"WrittenTwice", [](auto& p) { p.steps.push_back(p.steps[0]); },
                "step 1: tensor %20 writes \"lse\" a second time"},
        Refusal{"NeverWritten",
                [](auto& p) {
                  p.tensors.push_back(p.tensors[4]);
                  p.tensors.back().name = "max";
                },
                "output \"max\" is not completely written"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attn::plan
