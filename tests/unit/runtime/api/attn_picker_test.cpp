// Tests attn_picker on the stand-ins, in C and C++, with a script as attnc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <attn.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

namespace fs = std::filesystem;
using attn::Dim;
using attn::standin::contents_of_shapes;
using attn::standin::ShapedPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<attn_dim_size> sizes(std::int64_t keys) {
  return {{ATTN_DIM_B, 0, 1}, {ATTN_DIM_SQ, 0, 4}, {ATTN_DIM_SKV, 0, keys}};
}

class AttnPicker : public attn::standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    error_ = attn_error_create();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("attn_picker_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(folder_);
    cudnn_ = attn::standin::folder();
    attn_runtime_options options = {};
    options.size = sizeof options;
    options.cudnn_folder = cudnn_.c_str();
    expect_ok(attn_runtime_open(&options, &runtime_, error_));
  }
  void TearDown() override {
    attn_picker_destroy(picker_);
    attn_runtime_release(runtime_);
    attn_error_destroy(error_);
    fs::remove_all(folder_);
    StandinTest::TearDown();
  }

  void expect_ok(attn_status status) {
    EXPECT_EQ(status, ATTN_STATUS_OK) << attn_error_text(error_);
  }
  std::string message() const { return attn_error_message(error_); }

  void load(const std::vector<ShapedPlan>& plans, const std::string& attnc = "") {
    const std::string file = contents_of_shapes(plans);
    attn_picker_options options = {};
    options.size = sizeof options;
    if (!attnc.empty()) options.attnc = attnc.c_str();
    expect_ok(
        attn_picker_load_memory(runtime_, file.data(), file.size(), &options, &picker_, error_));
  }
  attn_status pick(const std::vector<attn_dim_size>& wanted, attn_pick_policy policy = {}) {
    policy.size = sizeof policy;
    picked_.size = sizeof picked_;
    return attn_picker_pick(picker_, wanted.data(), wanted.size(), &policy, &picked_, error_);
  }
  // Picks sizes that must be served, and releases the result at once.
  attn_fit fit_of(const std::vector<attn_dim_size>& wanted, attn_pick_policy policy = {}) {
    expect_ok(pick(wanted, policy));
    attn_executable_release(picked_.forward);
    attn_executable_release(picked_.backward);
    return picked_.fit;
  }
  std::int64_t keys() const { return picked_.shape.sizes[ATTN_DIM_SKV]; }

  std::string write(const std::string& name, const std::string& contents) {
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return (folder_ / name).string();
  }
  std::string read(const std::string& name) {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // An attnc that writes this plan and records its arguments.
  std::string attnc_for(const ShapedPlan& plan, const std::string& before = "") {
    const std::string ready = write("ready.attnplan", contents_of_shapes({plan}));
    return script(before + "\necho \"$@\" >> " + folder_.string() + "/calls\ncp " + ready +
                  " $OUT");
  }
  std::string script(const std::string& lines) {
    const std::string path =
        write("attnc",
              "#!/bin/sh\nfor a in \"$@\"; do [ \"$last\" = --output ] && OUT=$a; last=$a; done\n" +
                  lines + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  attn_error* error_ = nullptr;
  attn_runtime* runtime_ = nullptr;
  attn_picker* picker_ = nullptr;
  attn_picked picked_ = {};
  fs::path folder_;
  std::string cudnn_;
};

constexpr attn_pick_policy kNow = {0, ATTN_BUILD_NOW, 0, 0, 0, 0};
constexpr attn_pick_policy kInBackground = {0, ATTN_BUILD_IN_BACKGROUND, 0, 0, 0, 0};
constexpr attn_pick_policy kExactOnly = {0, ATTN_BUILD_NEVER, 1, 0, 0, 0};

TEST_F(AttnPicker, PicksTheExactPlanOrABucket) {
  load({{4}, {8}});
  expect_ok(pick(sizes(4)));
  EXPECT_EQ(picked_.fit, ATTN_FIT_EXACT);
  EXPECT_THAT(picked_.shape.sizes, ElementsAre(1, 2, 2, 4, 4, 8, 8));
  EXPECT_EQ(picked_.shape.padded, 1U << ATTN_DIM_B | 1U << ATTN_DIM_SQ | 1U << ATTN_DIM_SKV);
  EXPECT_EQ(picked_.backward, nullptr);
  attn_executable* const exact = picked_.forward;
  ASSERT_NE(exact, nullptr);
  expect_ok(pick(sizes(3)));
  EXPECT_EQ(picked_.fit, ATTN_FIT_BUCKET);
  EXPECT_EQ(keys(), 4);
  EXPECT_EQ(picked_.forward, exact) << "of the same plan";
  attn_executable_release(picked_.forward);
  EXPECT_EQ(fit_of(sizes(5)), ATTN_FIT_BUCKET);
  EXPECT_EQ(keys(), 8);

  attn_picker_destroy(std::exchange(picker_, nullptr));
  attn_executable_info info = {};
  info.size = sizeof info;
  expect_ok(attn_executable_describe(exact, &info, error_));
  EXPECT_EQ(info.tensor_count, 3U) << "it lives on";
  attn_executable_release(exact);
}

TEST_F(AttnPicker, ListsTheShapes) {
  load({{4}, {8, false}});
  size_t count = 0;
  expect_ok(attn_picker_shapes(picker_, nullptr, 0, &count, error_));
  EXPECT_EQ(count, 2U);
  attn_shape shapes[3] = {};
  expect_ok(attn_picker_shapes(picker_, shapes, 1, &count, error_));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(shapes[0].sizes[ATTN_DIM_SKV], 4);
  EXPECT_EQ(shapes[1].sizes[ATTN_DIM_SKV], 0) << "not written";
  expect_ok(attn_picker_shapes(picker_, shapes, 3, &count, error_));
  EXPECT_EQ(shapes[1].sizes[ATTN_DIM_SKV], 8);
  EXPECT_EQ(shapes[1].padded, 0U);
  EXPECT_EQ(attn_picker_shapes(picker_, nullptr, 1, &count, error_), ATTN_STATUS_INVALID_ARGUMENT);
}

TEST_F(AttnPicker, WhatIsMissingIsAnErrorThatSaysWhatThereIs) {
  load({{4}});
  EXPECT_EQ(pick(sizes(5)), ATTN_STATUS_PLAN_SHAPE);
  EXPECT_EQ(message(), "there is no plan for B=1 Sq=4 Skv=5");
  EXPECT_STREQ(attn_error_note(error_, 0), "there are plans for: B=1 Sq=4 Skv=4");
  EXPECT_EQ(pick(sizes(3), kExactOnly), ATTN_STATUS_PLAN_SHAPE);
  EXPECT_EQ(pick(sizes(5), kNow), ATTN_STATUS_PLAN_SHAPE) << "without attnc nothing is built";
}

TEST_F(AttnPicker, RefusesWhatHasNoMeaning) {
  load({{4}});
  const auto refused = [&](const std::vector<attn_dim_size>& wanted, attn_pick_policy policy = {}) {
    EXPECT_EQ(pick(wanted, policy), ATTN_STATUS_INVALID_ARGUMENT);
    return message();
  };
  EXPECT_EQ(refused({{ATTN_DIM_COUNT, 0, 4}}), "7 is not an attn_dim");
  EXPECT_EQ(refused({{-1, 0, 4}}), "-1 is not an attn_dim");
  EXPECT_EQ(refused({{ATTN_DIM_SQ, 0, -4}}), "Sq is -4, which is negative");
  EXPECT_EQ(refused({{ATTN_DIM_SQ, 1, 4}}), "`reserved` of a structure must be 0");
  EXPECT_EQ(refused(sizes(4), {0, 0, 0, 0, 0, 8}),
            "the size of an array's elements is 8, but must be their sizeof");
  EXPECT_EQ(refused({{ATTN_DIM_B, 0, 4}, {ATTN_DIM_B, 0, 4}}), "B is given twice");
  EXPECT_EQ(refused(sizes(4), {0, 3, 0, 0, 0, 0}), "3 is not an attn_build");
  EXPECT_EQ(attn_picker_pick(picker_, nullptr, 1, nullptr, &picked_, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(attn_picker_pick(nullptr, nullptr, 0, nullptr, &picked_, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  picked_.size = 0;
  EXPECT_EQ(attn_picker_pick(picker_, nullptr, 0, nullptr, &picked_, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  attn_spec spec = {};
  spec.size = sizeof spec;
  spec.text = "attention x { }";
  attn_picker* none = nullptr;
  EXPECT_EQ(attn_picker_create(runtime_, &spec, nullptr, &none, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "a picker without plans needs attnc to build them");
  EXPECT_EQ(attn_picker_load_file(runtime_, "/no/such.attnplan", nullptr, &none, error_),
            ATTN_STATUS_IO);
  EXPECT_EQ(none, nullptr);
  EXPECT_STREQ(attn_dim_name(ATTN_DIM_HKV), "Hkv");
  EXPECT_STREQ(attn_dim_name(ATTN_DIM_COUNT), "unknown");
}

// Like programs built with the first attn.h: nothing beyond their structure sizes is read.
TEST_F(AttnPicker, StructuresOfTheFirstHeaderStillWork) {
  const std::string file = contents_of_shapes({{4}});
  const std::string attnc = attnc_for({9});
  attn_picker_options options = {};
  options.size = offsetof(attn_picker_options, sha256);
  options.attnc = attnc.c_str();
  options.sha256 = "not looked at";
  expect_ok(
      attn_picker_load_memory(runtime_, file.data(), file.size(), &options, &picker_, error_));
  attn_pick_policy policy = {};
  policy.size = offsetof(attn_pick_policy, dim_size_bytes);
  policy.dim_size_bytes = 1;
  picked_.size = sizeof picked_;
  const std::vector<attn_dim_size> wanted = sizes(4);
  expect_ok(attn_picker_pick(picker_, wanted.data(), 3, &policy, &picked_, error_));
  attn_executable_release(picked_.forward);

  const attn_spec_binding bindings[] = {{"w", "16"}};
  attn_spec spec = {};
  spec.size = offsetof(attn_spec, binding_bytes);
  spec.text = "attention x { .. }";
  spec.bindings = bindings;
  spec.binding_count = 1;
  spec.binding_bytes = 1;
  attn_picker* created = nullptr;
  expect_ok(attn_picker_create(runtime_, &spec, &options, &created, error_));
  attn_picker_destroy(created);
}

// Like programs built with a later attn.h.
struct LargerSize {
  attn_dim_size known;
  std::int64_t later;
};
struct LargerShape {
  attn_shape known;
  std::int64_t later;
};

TEST_F(AttnPicker, ArraysAreWalkedByTheCallersElements) {
  load({{4}, {8}});
  std::vector<LargerSize> wanted;
  for (const attn_dim_size& size : sizes(3)) wanted.push_back({size, 0});
  attn_pick_policy policy = {};
  policy.size = sizeof policy;
  policy.dim_size_bytes = sizeof(LargerSize);
  picked_.size = sizeof picked_;
  const auto pick_larger = [&] {
    return attn_picker_pick(picker_, &wanted[0].known, wanted.size(), &policy, &picked_, error_);
  };
  expect_ok(pick_larger());
  EXPECT_EQ(keys(), 4);
  attn_executable_release(picked_.forward);
  wanted[1].later = 1;
  EXPECT_EQ(pick_larger(), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message(), HasSubstr("newer"));

  LargerShape shapes[2] = {};
  shapes[0].later = shapes[1].later = 7;
  size_t count = 0;
  expect_ok(attn_picker_list(picker_, &shapes[0].known, sizeof(LargerShape), 2, &count, error_));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(shapes[1].known.sizes[ATTN_DIM_SKV], 8);
  EXPECT_EQ(shapes[1].later, 7) << "not written";
  EXPECT_EQ(attn_picker_list(picker_, &shapes[0].known, 0, 2, &count, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
}

TEST_F(AttnPicker, APlanThatDoesNotFitIsMissingWhenItMayBeBuilt) {
  for (const bool other_device : {false, true}) {
    ShapedPlan foreign{4};
    (other_device ? foreign.sm : foreign.cudnn_version) = other_device ? 80 : 91800;
    load({foreign, {8}});
    EXPECT_EQ(pick(sizes(4)), other_device ? ATTN_STATUS_PLAN_DEVICE : ATTN_STATUS_PLAN_VERSION)
        << "nothing is built";
    attn_picker_destroy(std::exchange(picker_, nullptr));

    load({foreign, {8, false}}, attnc_for({4}));
    EXPECT_EQ(pick(sizes(4)), ATTN_STATUS_PLAN_SHAPE);
    EXPECT_THAT(attn_error_text(error_), HasSubstr("Skv=4 Dqk=8 Dv=8 does not fit: the plan was"));
    EXPECT_EQ(fit_of(sizes(4), kNow), ATTN_FIT_BUILT);
    EXPECT_EQ(fit_of(sizes(4)), ATTN_FIT_EXACT);
    EXPECT_EQ(fit_of(sizes(8)), ATTN_FIT_EXACT);
    attn_picker_destroy(std::exchange(picker_, nullptr));

    load({foreign}, attnc_for({4}));
    EXPECT_EQ(fit_of(sizes(4), kNow), ATTN_FIT_BUILT) << "when none fits";
    attn_picker_destroy(std::exchange(picker_, nullptr));
  }
  EXPECT_THAT(read("calls"), HasSubstr("--target native")) << "not for the other device";
}

TEST_F(AttnPicker, ItsFileIsLoadedOnlyWhenItIsTrusted) {
  const std::string file = contents_of_shapes({{4}});
  attn_picker_options options = {};
  options.size = sizeof options;
  options.verify = [](void*, const void*, size_t) -> int32_t { return 1; };
  EXPECT_EQ(attn_picker_load_memory(runtime_, file.data(), file.size(), &options, &picker_, error_),
            ATTN_STATUS_PLAN_REFUSED);
  const std::string path = write("plans.attnplan", file);
  EXPECT_EQ(attn_picker_load_file(runtime_, path.c_str(), &options, &picker_, error_),
            ATTN_STATUS_PLAN_REFUSED);
  EXPECT_EQ(picker_, nullptr);
}

TEST_F(AttnPicker, BuildsWhatIsMissing) {
  load({{4}}, attnc_for({9}));
  EXPECT_EQ(fit_of(sizes(3), kNow), ATTN_FIT_BUCKET);
  EXPECT_EQ(fit_of(sizes(9), kNow), ATTN_FIT_BUILT);
  EXPECT_EQ(keys(), 9);
  EXPECT_EQ(fit_of(sizes(9)), ATTN_FIT_EXACT);
  const std::string calls = read("calls");
  EXPECT_THAT(calls, HasSubstr("--cudnn " + cudnn_ + " --bind B=1 --bind Skv=9 --bind Sq=4\n"));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 1) << "once";
}

TEST_F(AttnPicker, ABuildThatFailedIsTheAnswerUntilItIsTriedAgain) {
  load({{4}}, attnc_for({9}, "[ -f " + (folder_ / "works").string() +
                                 " ] || { echo '{\"error\": {\"code\": \"unsupported\", "
                                 "\"message\": \"no engine\"}}'; exit 3; }"));
  EXPECT_EQ(pick(sizes(9), kNow), ATTN_STATUS_UNSUPPORTED);
  EXPECT_EQ(message(), "no engine");
  write("works", "");
  EXPECT_EQ(pick(sizes(9), kNow), ATTN_STATUS_UNSUPPORTED);
  attn_pick_policy retry = kNow;
  retry.retry = 1;
  EXPECT_EQ(fit_of(sizes(9), retry), ATTN_FIT_BUILT);
}

TEST_F(AttnPicker, BuildsInTheBackground) {
  load({{4}}, attnc_for({9}));
  EXPECT_EQ(pick(sizes(9), kInBackground), ATTN_STATUS_PLAN_PENDING);
  while (pick(sizes(9), kInBackground) == ATTN_STATUS_PLAN_PENDING) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(attn_error_status(error_), ATTN_STATUS_OK) << attn_error_text(error_);
  EXPECT_EQ(picked_.fit, ATTN_FIT_EXACT);
  attn_executable_release(picked_.forward);
}

TEST_F(AttnPicker, ItsEndEndsABuild) {
  load({{4}}, script("sleep 1000000"));
  EXPECT_EQ(pick(sizes(9), kInBackground), ATTN_STATUS_PLAN_PENDING);
  attn_picker_destroy(std::exchange(picker_, nullptr));  // does not wait for it
}

TEST_F(AttnPicker, WithoutAPlanTheSpecIsBuilt) {
  const attn::Runtime runtime(runtime_);
  attn_runtime_retain(runtime_);
  attn::PickerOptions options;
  options.attnc = attnc_for({2}, "cp $2 " + (folder_ / "spec").string());
  options.target = "h200";
  options.arguments = {"--direction", "fwd"};
  options.timeout_seconds = 60;
  const auto picker = attn::Picker::create(runtime, {"attention x { .. }", {{"w", "16"}}}, options);
  ASSERT_TRUE(picker.ok()) << picker.error().to_text();
  const auto built = picker->pick({{Dim::Sq, 4}, {Dim::Skv, 2}}, {true, attn::Build::now, false});
  ASSERT_TRUE(built.ok()) << built.error().to_text();
  EXPECT_EQ(built->fit(), attn::Fit::built);
  EXPECT_EQ(built->shape()[Dim::B], 1);
  EXPECT_TRUE(built->shape().pads(Dim::Skv));
  EXPECT_FALSE(built->shape().pads(Dim::Hq));
  EXPECT_EQ(read("spec"), "attention x { .. }");
  EXPECT_THAT(read("calls"), HasSubstr("/h200.json --cudnn"));
  EXPECT_THAT(read("calls"), HasSubstr("--bind Skv=2 --bind Sq=4 --bind w=16 --direction fwd\n"));
  ASSERT_EQ(picker->shapes()->size(), 1U);
  EXPECT_EQ((*picker->shapes())[0][Dim::Skv], 2);

  options.target = "abacus";
  const auto refused = attn::Picker::create(runtime, {"attention x { .. }"}, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, attn::Code::invalid_argument);
}

TEST_F(AttnPicker, InCppAPlanIsReadWhenItIsWanted) {
  attn_runtime_retain(runtime_);
  std::optional<attn::Picked> picked;
  {
    const attn::Runtime runtime(runtime_);
    const std::string path = write("plans.attnplan", contents_of_shapes({{4}, {8}}));
    const auto picker = attn::Picker::load_file(runtime, path);
    ASSERT_TRUE(picker.ok()) << picker.error().to_text();
    const auto again = picker->pick({{Dim::Skv, 4}});
    const auto result = picker->pick({{Dim::B, 1}, {Dim::Sq, 4}, {Dim::Skv, 3}});
    ASSERT_TRUE(result.ok()) << result.error().to_text();
    EXPECT_EQ(result->fit(), attn::Fit::bucket);
    EXPECT_EQ(result->handle(), again->handle());
    picked = *result;
    const auto shapes = picker->shapes();
    ASSERT_TRUE(shapes.ok()) << shapes.error().to_text();
    EXPECT_EQ((*shapes)[1][Dim::Skv], 8);
    const auto file = attn::PlanFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().to_text();
    ASSERT_EQ(file->size(), 2U);
    const auto second = file->plan(1);
    ASSERT_TRUE(second.ok()) << second.error().to_text();
    EXPECT_EQ(second->shape[Dim::Skv], 8);
    EXPECT_TRUE(second->shape.pads(Dim::Skv));
    const auto vague = picker->pick({{Dim::Sq, 4}});
    ASSERT_FALSE(vague.ok());
    EXPECT_EQ(vague.error().code, attn::Code::invalid_argument);
    EXPECT_THAT(vague.error().message, HasSubstr("differ in Skv"));
  }
  const auto executable = picked->executable();
  ASSERT_TRUE(executable.ok()) << executable.error().to_text();
  EXPECT_EQ(executable->tensors().size(), 3U);
  EXPECT_EQ(picked->handle(attn::Direction::backward), nullptr);
  const auto backward = picked->executable(attn::Direction::backward);
  ASSERT_FALSE(backward.ok());
  EXPECT_EQ(backward.error().code, attn::Code::invalid_argument);
}

attn_shape shape(std::int64_t rows, std::int64_t keys) {
  return {{1, -1, -1, rows, keys, -1, -1}, 1U << ATTN_DIM_SQ | 1U << ATTN_DIM_SKV, 0};
}

TEST_F(AttnPicker, AShapeIsChosenBeforeThereAreAnyPlans) {
  const attn_shape shapes[] = {shape(8, 8), shape(8, 64), shape(64, 8), shape(64, 64)};
  const auto chosen = [&](const attn_shape& wanted, std::size_t count = 4) {
    std::size_t index = 99;
    expect_ok(attn_shape_choose(shapes, count, &wanted, &index, error_));
    return index;
  };
  EXPECT_EQ(chosen(shape(8, 8)), 0U);
  EXPECT_EQ(chosen(shape(1, 9)), 1U) << "the one of least work that contains it";
  EXPECT_EQ(chosen(shape(9, 0)), 2U);
  EXPECT_EQ(chosen(shape(64, 9)), 3U);
  EXPECT_EQ(chosen(shape(65, 1)), 4U) << "none";
  EXPECT_EQ(chosen(shape(1, 1), 0), 0U) << "there is none";

  std::size_t index = 0;
  const auto refused = [&](const attn_shape* wanted) {
    EXPECT_EQ(attn_shape_choose(shapes, 4, wanted, &index, error_), ATTN_STATUS_INVALID_ARGUMENT);
    return message();
  };
  const attn_shape vague = shape(8, -1);
  EXPECT_EQ(refused(&vague), "plans for B=1 Sq=8 differ in Skv: give that size too");
  const attn_shape negative = shape(8, -2);
  EXPECT_EQ(refused(&negative), "Skv is -2, which is negative");
  EXPECT_THAT(refused(nullptr), HasSubstr("the wanted sizes"));
  attn_shape later = shape(8, 8);
  later.reserved = 1;
  EXPECT_EQ(refused(&later), "`reserved` of a structure must be 0");
  later.reserved = 0;
  later.padded = 1U << ATTN_DIM_HQ;
  EXPECT_EQ(refused(&later), "only B, Sq and Skv can be padded");
  EXPECT_EQ(attn_shape_choose(nullptr, 1, &later, &index, error_), ATTN_STATUS_INVALID_ARGUMENT);

  const std::vector<attn::Shape> listed(std::begin(shapes), std::end(shapes));
  const std::vector<attn::Size> wanted = {{Dim::B, 1}, {Dim::Sq, 9}, {Dim::Skv, 9}};
  EXPECT_EQ(*attn::choose_shape(listed, wanted).value(), 3U);
  EXPECT_FALSE(attn::choose_shape({}, wanted).value());
}

TEST_F(AttnPicker, APlanOfAFileIsChosenBySizesGpuAndTensors) {
  const std::string contents = contents_of_shapes({{4}, {8, true, 80}, {8}});
  const auto file = attn::PlanFile::open_memory(contents);
  ASSERT_TRUE(file.ok()) << file.error().to_text();
  const auto forward = [&](const std::vector<attn::Size>& wanted, int sm = 90,
                           const attn::Arguments* given = nullptr) {
    const auto chosen = attn::choose_plans(*file, sm, wanted, given);
    EXPECT_TRUE(chosen.ok()) << chosen.error().to_text();
    EXPECT_FALSE(chosen->backward);
    return chosen->forward;
  };
  const std::vector<attn::Size> keys = {{Dim::Skv, 8}};
  EXPECT_EQ(forward(keys), 2U);
  EXPECT_EQ(forward(keys, 80), 1U);
  EXPECT_EQ(forward({}, 80), 1U) << "the only one";
  EXPECT_EQ(forward(keys, 100), std::nullopt);
  EXPECT_EQ(forward({{Dim::B, 1}, {Dim::Sq, 4}, {Dim::Skv, 3}}), std::nullopt)
      << "nothing is padded";
  const attn::TensorView q = {nullptr, attn::DType::bf16, {1, 2, 4, 8}};
  attn::Arguments given;
  given.tensor("q", q);
  EXPECT_EQ(forward(keys, 90, &given), 2U);
  given.tensor("q", {nullptr, attn::DType::f16, q.dims});
  EXPECT_EQ(forward(keys, 90, &given), std::nullopt);
  given.tensor("q", {nullptr, q.dtype, q.dims, {64, 8, 16, 1}});
  EXPECT_EQ(forward(keys, 90, &given), std::nullopt);
  EXPECT_EQ(attn::choose_plans(*file, 90, {}).error().message,
            "plans differ in Skv: give that size too");
  EXPECT_EQ(attn::choose_plans({}, 90, {}).error().code, attn::Code::invalid_argument);
}

TEST_F(AttnPicker, ThreadsPickAtOnce) {
  constexpr int kThreads = 8, kRounds = 200;
  load({{4}, {8}}, attnc_for({9}));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const std::vector<attn_dim_size> wanted = sizes(1 + (thread + round) % 9);
        attn_pick_policy policy = kNow;
        policy.size = sizeof policy;
        attn_picked picked = {};
        picked.size = sizeof picked;
        if (attn_picker_pick(picker_, wanted.data(), wanted.size(), &policy, &picked, nullptr) !=
                ATTN_STATUS_OK ||
            picked.shape.sizes[ATTN_DIM_SKV] < wanted[2].size) {
          ++wrong;
        }
        attn_executable_release(picked.forward);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const std::string calls = read("calls");
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 1) << "built once";
}

}  // namespace
