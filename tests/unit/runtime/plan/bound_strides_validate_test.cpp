// Validation of tensors with bound strides, and of maps of packed rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

TEST(ValidateProgram, BoundStridesAreOfRowsThatOthersLocate) {
  const auto refusal =
      [](const std::function<void(Program&, std::vector<KernelArgument>&)>& change) {
        Program program = testing::bound_program();
        change(program, std::get<KernelStep>(program.steps[0]).launches[0].arguments);
        const Status status = validate(program);
        return status.ok() ? "accepted" : status.error().message;
      };
  const auto map = [](KernelArgument& argument) -> TensorMapArgument& {
    return std::get<TensorMapArgument>(argument);
  };
  const char* axes = "step 0: has a tensor map of invalid axes";
  const char* stride = "step 0: reads an unknown stride of \"q\"";
  EXPECT_EQ(refusal([](auto&, auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.tensors[3].bound_strides = true; }),
            "tensor \"cu_seqlens_q\" has bound strides, but no other tensor locates its rows");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.tensors[2].addressed_by = ""; }),
            "tensor \"v\" has bound strides, but no other tensor locates its rows");
  EXPECT_EQ(refusal([&](auto&, auto& a) { map(a[2]).axes.pop_back(); }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { map(a[2]).axes.clear(); }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { map(a[2]).axes[0] = 4; }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { map(a[2]).axes[0] = -2; }), axes);
  EXPECT_EQ(refusal([](auto& p, auto&) { p.tensors[1].bound_strides = false; }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { map(a[2]).strides[0] = std::int64_t{1} << 62; }),
            "step 0: has a tensor map of invalid size");
  EXPECT_EQ(refusal([](auto&, auto& a) { a[1] = StrideArgument{"q", 4}; }), stride);
  EXPECT_EQ(refusal([](auto&, auto& a) { a[1] = StrideArgument{"q", -1}; }), stride);
  EXPECT_EQ(refusal([](auto&, auto& a) {
              a[1] = StrideArgument{"x", 0};
            }),
            "step 0: reads an unknown stride of \"x\"");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.tensors[2].bound_strides = false; }),
            "step 0: reads an unknown stride of \"v\"");
}

TEST(ValidateProgram, RowsOfAFormatAreItsBytes) {
  const auto refusal = [](const std::function<void(TensorInfo&)>& change) {
    Program program = testing::bound_program();
    program.tensors.push_back(
        {"rows", TensorRole::key, DType::u8, {4, 1, 8, 656}, {5248, 5248, 656, 1}});
    program.tensors.back().rows = "fp8_ds_mla";
    change(program.tensors.back());
    const Status status = validate(program);
    return status.ok() ? "accepted" : status.error().message;
  };
  const char* wrong = "tensor \"rows\" has rows of another format than its type and dims";
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto& tensor) { tensor.rows = "fp8"; }), wrong);
  EXPECT_EQ(refusal([](auto& tensor) { tensor.dtype = DType::i8; }), wrong);
  EXPECT_EQ(refusal([](auto& tensor) { tensor.dims[3] = 640; }), wrong);
}

TEST(ValidateProgram, PagesAndHeadsAreTheLastDimension) {
  const auto refusal =
      [](const std::function<void(Program&, std::vector<KernelArgument>&)>& change) {
        Program program = testing::stepped_program();
        change(program, std::get<KernelStep>(program.steps[0]).launches[0].arguments);
        const Status status = validate(program);
        return status.ok() ? "accepted" : status.error().message;
      };
  const char* axes = "step 0: has a tensor map of invalid axes";
  const auto axes_of = [](KernelArgument& argument) -> std::vector<std::int64_t>& {
    return std::get<TensorMapArgument>(argument).axes;
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "accepted");
  EXPECT_EQ(refusal([&](auto&, auto& a) { std::ranges::reverse(axes_of(a[2])); }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { axes_of(a[2])[1] = -3; }), axes);
  EXPECT_EQ(refusal([&](auto&, auto& a) { axes_of(a[2])[0] = -2; }), axes);
  EXPECT_EQ(refusal([](auto&, auto& a) { std::get<StrideArgument>(a.back()).axis = 2; }),
            "step 0: reads an unknown stride of \"k\"");
  EXPECT_EQ(refusal([&](auto&, auto& a) { axes_of(a[2])[1] = 0; }),
            "step 0: takes strides of \"k\" in steps of a map that it does not have");
}

TEST(ValidateProgram, StepsReachEachPageAndHead) {
  Program program = testing::stepped_program();
  const auto& arguments = std::get<KernelStep>(program.steps[0]).launches[0].arguments;
  TensorInfo& k = program.tensors[1];
  const auto seen = [&](std::int64_t pages, std::int64_t page, std::int64_t head) {
    k.dims[0] = pages;
    k.strides[0] = page, k.strides[1] = head;
    const TensorMapArgument map = resolved(std::get<TensorMapArgument>(arguments[2]), k);
    return std::vector{map.strides[1], map.dims[2], value_of({"k", 0, true}, k),
                       value_of({"k", 1, true}, k)};
  };
  EXPECT_EQ(seen(100, 1024, 128), (std::vector<std::int64_t>{128, 99 * 8 + 1 + 1, 8, 1}));
  EXPECT_EQ(seen(100, 1032, 128), (std::vector<std::int64_t>{8, 99 * 129 + 16 + 1, 129, 16}));
  EXPECT_EQ(seen(1, 7, 128), (std::vector<std::int64_t>{128, 2, 0, 1})) << "one page has no stride";
  k.dims[1] = 1;
  EXPECT_EQ(seen(100, 1024, 7), (std::vector<std::int64_t>{1024, 100, 1, 0}));
  EXPECT_EQ(seen(1, 7, 7), (std::vector<std::int64_t>{8, 1, 0, 0}));
  k.dims[1] = 2;
  EXPECT_EQ(*program_from_json(to_json(program)), program);
  EXPECT_EQ(seen(std::int64_t{1} << 40, std::int64_t{1} << 40, 128)[1], 0) << "beyond 63 bits";
}

// The tensor is packed: a control tensor says how many rows its memory has.
TEST(ValidateProgram, PackedMapsHaveRowsThreeTimes) {
  constexpr std::int64_t kSteps = TensorMapArgument::kPackedSteps;
  constexpr std::int64_t kMost = TensorMapArgument::kPackedMost, kNone = TensorMapArgument::kNoAxis;
  const auto refusal = [&](const std::function<void(Program&, TensorMapArgument&)>& change) {
    Program program = testing::bound_program();
    auto& map = std::get<TensorMapArgument>(
        std::get<KernelStep>(program.steps[0]).launches[0].arguments[0]);
    map.dims = {8, 2, kSteps, kMost, kMost};
    map.strides = {1, 1, 1, 8};
    map.box = {8, 1, 1, 1, 1};
    map.axes = {1, 2, 2, kNone};
    map.packed = true;
    change(program, map);
    const Status status = validate(program);
    return status.ok() ? "accepted" : status.error().message;
  };
  const char* rows = "step 0: has a tensor map of packed rows without their dimensions";
  EXPECT_EQ(refusal([](auto&, auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto&, auto& m) { m.dims[2] *= 2; }), rows);
  EXPECT_EQ(refusal([](auto&, auto& m) { m.dims[4] = kSteps; }), rows);
  EXPECT_EQ(refusal([](auto&, auto& m) { m.dims[3] = 1; }), rows);
  EXPECT_EQ(refusal([](auto&, auto& m) { m.axes[1] = 1; }), rows) << "another stride";
  EXPECT_EQ(refusal([](auto&, auto& m) { m.dims[1] = 5; }), "step 0: reads past the end of \"q\"");
  EXPECT_EQ(refusal([](auto& p, auto& m) {
              p.tensors[0].bound_strides = false;
              p.tensors[0].addressed_by = "";
              m.axes.clear();
              m.strides = {8, 16, 16, 16};
            }),
            rows);
}

TEST(ValidateProgram, OnlyKernelStepsReadBoundStrides) {
  Program derived = testing::derived_program();
  TensorInfo table{"page_table", TensorRole::control, DType::i32, {2, 2}, {2, 1}, 4, "", true};
  derived.tensors.push_back(table);
  std::get<DeriveStep>(derived.steps[1]).inputs[0] = TensorOperand{"page_table"};
  EXPECT_EQ(validate(derived).error().message,
            "step 1: reads \"page_table\", whose strides are bound");
  Program controlled = testing::controlled_program();
  controlled.tensors[1].bound_strides = true;
  EXPECT_THAT(validate(controlled).error().message,
              ::testing::HasSubstr("is bound to \"k\", which has bound strides"));
}

// A pool's map has the pages that are bound, and a packed tensor's one sequence.
TEST(ValidateProgram, MapsHaveBoundStrides) {
  Program program = testing::bound_program();
  const auto& arguments = std::get<KernelStep>(program.steps[0]).launches[0].arguments;
  TensorInfo& k = program.tensors[1];
  k.dims[0] = 100;
  k.strides = {1024, 16, 128, 1};
  const TensorMapArgument pool = resolved(std::get<TensorMapArgument>(arguments[2]), k);
  EXPECT_EQ(pool.dims, (std::vector<std::int64_t>{8, 4, 2, 100}));
  EXPECT_EQ(pool.strides, (std::vector<std::int64_t>{128, 16, 1024}));
  EXPECT_TRUE(pool.axes.empty());
  TensorInfo& q = program.tensors[0];
  q.strides = {0, 64, 640, 1};
  const TensorMapArgument rows = resolved(std::get<TensorMapArgument>(arguments[0]), q);
  EXPECT_EQ(rows.dims, (std::vector<std::int64_t>{8, 2, 1, 1}));
  EXPECT_EQ(rows.strides, (std::vector<std::int64_t>{64, 16, 16}));
}

}  // namespace
}  // namespace attn::plan
