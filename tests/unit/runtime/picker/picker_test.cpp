#include "runtime/picker/picker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "tests/unit/runtime/picker/picker_testing.h"

namespace attn::picker {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Build = Policy::Build;

// What plans are loaded as. `live` counts the instances.
struct Loaded {
  std::string text;
  std::shared_ptr<int> alive;
};
using TestPicker = Picker<Loaded>;

std::int64_t bound(const BuildRequest& request, const char* name) {
  return std::stoll(request.bindings.at(name));
}

// A picker that counts loads and builds; the test controls how long builds take.
class PickerTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestPicker> make(std::vector<plan::Plan> plans, bool builds = true) {
    PickerOptions options;
    options.plans.plans = std::move(plans);
    options.origin = {"attention x { .. }", {{"cap", "30"}}};
    options.most_built = most_built_;
    if (builds) {
      options.builder = [this](const BuildRequest& request, const std::stop_token& stop) {
        return build(request, stop);
      };
    }
    auto picker = TestPicker::create(std::move(options),
                                     [this](const plan::Plan& plan) { return load(plan); });
    EXPECT_TRUE(picker.ok()) << picker.error().to_text();
    return std::move(*picker);
  }

  Result<Loaded> load(const plan::Plan& plan) {
    ++loads_;
    if (load_fails_) return {ErrorCode::plan_device, "another GPU"};
    return Loaded{plan::to_text(plan.shape.sizes), alive_};
  }

  Result<plan::Bundle> build(const BuildRequest& request, const std::stop_token& stop) {
    ++builds_;
    while (held_ && !stop.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
    if (stop.stop_requested()) return {ErrorCode::worker, "the build was stopped"};
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    if (build_fails_) return {ErrorCode::unsupported, "no engine takes this"};
    return plan::Bundle{
        {plan_of(shape_of(bound(request, "B"), bound(request, "Sq"), bound(request, "Skv")))}};
  }

  // Picks until a plan of these sizes exists.
  static Picked<Loaded> wait_for(TestPicker& picker, const Sizes& wanted) {
    for (;;) {
      const auto picked = picker.pick(wanted);
      if (picked.ok() && picked->fit == Fit::exact) return *picked;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::atomic<int> loads_ = 0, builds_ = 0;
  std::atomic<bool> held_ = false, build_fails_ = false, load_fails_ = false;
  std::size_t most_built_ = 256;
  std::mutex mutex_;
  std::vector<BuildRequest> requests_;
};

TEST_F(PickerTest, AnExactPlanIsLoadedOnce) {
  const auto picker = make({plan_of(shape_of(4, 8, 8)), plan_of(shape_of(8, 8, 8))});
  EXPECT_EQ(loads_, 0);
  for (int i = 0; i < 3; ++i) {
    const auto picked = picker->pick(sizes(4, 8, 8));
    ASSERT_TRUE(picked.ok()) << picked.error().to_text();
    EXPECT_EQ(picked->fit, Fit::exact);
    EXPECT_EQ(picked->shape, shape_of(4, 8, 8));
    EXPECT_EQ(picked->forward->text, "B=4 Hq=4 Hkv=2 Sq=8 Skv=8 Dqk=8 Dv=8");
    EXPECT_EQ(picked->backward, nullptr);
  }
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(builds_, 0);
}

TEST_F(PickerTest, APairIsPickedAsOne) {
  const auto picker = make({plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 8, 8), true)});
  const auto picked = picker->pick(sizes(3, 8, 8));
  ASSERT_TRUE(picked.ok()) << picked.error().to_text();
  EXPECT_EQ(picked->fit, Fit::bucket);
  ASSERT_NE(picked->forward, nullptr);
  ASSERT_NE(picked->backward, nullptr);
  EXPECT_EQ(loads_, 2);
  const auto built = picker->pick(sizes(5, 8, 8), {.build = Build::now});
  ASSERT_FALSE(built.ok()) << "the builder makes no backward";
  EXPECT_THAT(built.error().message, HasSubstr("do not have the same directions"));
}

TEST_F(PickerTest, ABucketServesUnlessThePolicyWantsBetter) {
  const auto picker = make({plan_of(shape_of(8, 64, 64)), plan_of(shape_of(4, 64, 64))});
  auto picked = picker->pick(sizes(3, 60, 61));
  ASSERT_TRUE(picked.ok()) << picked.error().to_text();
  EXPECT_EQ(picked->fit, Fit::bucket);
  EXPECT_EQ(picked->shape, shape_of(4, 64, 64));
  picked = picker->pick(sizes(3, 60, 61), {.build = Build::now});
  EXPECT_EQ(picked->fit, Fit::bucket) << "a build is for what has no plan";
  EXPECT_EQ(builds_, 0);
  EXPECT_EQ(picker->pick(sizes(3, 60, 61), {.buckets = false}).error().code, ErrorCode::plan_shape);
  picked = picker->pick(sizes(3, 60, 61), {.buckets = false, .build = Build::now});
  ASSERT_TRUE(picked.ok()) << picked.error().to_text();
  EXPECT_EQ(picked->fit, Fit::built);
  EXPECT_EQ(picked->shape.sizes, shape_of(3, 60, 61).sizes);
  EXPECT_EQ(picker->pick(sizes(3, 60, 61))->fit, Fit::exact);
  EXPECT_EQ(picker->pick(sizes(2, 60, 61))->shape.sizes, shape_of(3, 60, 61).sizes)
      << "what was built is a bucket too";
  EXPECT_EQ(builds_, 1);
}

TEST_F(PickerTest, WithoutAPlanOrABuilderTheShapesAreNamed) {
  const auto picker = make({plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 16, 8))}, false);
  for (const Build build : {Build::never, Build::now, Build::in_background}) {
    const auto picked = picker->pick(sizes(5, 8, 8), {.build = build});
    ASSERT_FALSE(picked.ok());
    EXPECT_EQ(picked.error().code, ErrorCode::plan_shape);
    EXPECT_EQ(picked.error().message, "there is no plan for B=5 Sq=8 Skv=8");
    EXPECT_THAT(picked.error().notes,
                ElementsAre("there are plans for: B=4 Sq=8 Skv=8; B=4 Sq=16 Skv=8"));
  }
  EXPECT_EQ(picker->pick({{Dim::B, 4}}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(picker->pick(sizes(4, 7, 8), {.build = Build::in_background})->fit, Fit::bucket);
}

TEST_F(PickerTest, NoPlansAtAllAreBuiltOfTheOrigin) {
  const auto picker = make({});
  EXPECT_EQ(picker->pick(sizes(4, 8, 8)).error().code, ErrorCode::plan_shape);
  const auto picked = picker->pick(sizes(4, 8, 8), {.build = Build::now});
  ASSERT_TRUE(picked.ok()) << picked.error().to_text();
  EXPECT_EQ(picked->fit, Fit::built);
  ASSERT_EQ(requests_.size(), 1U);
  EXPECT_EQ(requests_[0].spec_text, "attention x { .. }");
  EXPECT_EQ(requests_[0].bindings.at("cap"), "30");
  EXPECT_EQ(requests_[0].bindings.at("Sq"), "8");
  ASSERT_EQ(picker->shapes().size(), 1U);
}

TEST_F(PickerTest, AFailedBuildIsToldAndNotRepeated) {
  const auto picker = make({plan_of(shape_of(4, 8, 8, {}))});
  build_fails_ = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(picker->pick(sizes(5, 8, 8), {.build = Build::now}).error().message,
              "no engine takes this");
  }
  EXPECT_EQ(picker->pick(sizes(5, 8, 8), {.build = Build::in_background}).error().message,
            "no engine takes this");
  EXPECT_EQ(builds_, 1);
  build_fails_ = false;
  const auto picked = picker->pick(sizes(5, 8, 8), {.build = Build::now, .retry = true});
  ASSERT_TRUE(picked.ok()) << picked.error().to_text();
  EXPECT_EQ(picked->fit, Fit::built);
  EXPECT_EQ(builds_, 2);
}

TEST_F(PickerTest, WhatCannotBeLoadedIsToldAndTriedAgain) {
  const auto picker = make({plan_of(shape_of(4, 8, 8))});
  load_fails_ = true;
  EXPECT_EQ(picker->pick(sizes(4, 8, 8)).error().code, ErrorCode::plan_device);
  EXPECT_EQ(picker->pick(sizes(9, 8, 8), {.build = Build::now}).error().code,
            ErrorCode::plan_device);
  load_fails_ = false;
  EXPECT_TRUE(picker->pick(sizes(4, 8, 8)).ok());
  EXPECT_FALSE(picker->pick(sizes(9, 8, 8)).ok());
}

TEST_F(PickerTest, ABackgroundBuildReplacesTheBucket) {
  const auto picker = make({plan_of(shape_of(4, 8, 8))});
  held_ = true;
  const Policy policy{.build = Build::in_background};
  for (int i = 0; i < 5; ++i) {
    const auto picked = picker->pick(sizes(3, 7, 7), policy);
    ASSERT_TRUE(picked.ok()) << picked.error().to_text();
    EXPECT_EQ(picked->fit, Fit::bucket);
  }
  const auto pending = picker->pick(sizes(5, 8, 8), policy);
  ASSERT_FALSE(pending.ok()) << "no bucket";
  EXPECT_EQ(pending.error().code, ErrorCode::plan_pending);
  EXPECT_EQ(
      picker->pick(sizes(3, 7, 7), {.buckets = false, .build = Build::in_background}).error().code,
      ErrorCode::plan_pending);
  held_ = false;
  EXPECT_EQ(wait_for(*picker, sizes(3, 7, 7)).shape.sizes, shape_of(3, 7, 7).sizes);
  EXPECT_EQ(wait_for(*picker, sizes(5, 8, 8)).shape.sizes, shape_of(5, 8, 8).sizes);
  EXPECT_EQ(builds_, 2);
  const int loads = loads_;
  EXPECT_EQ(picker->pick(sizes(5, 8, 8))->fit, Fit::exact);
  EXPECT_EQ(loads_, loads) << "it was loaded where it was built";
}

TEST_F(PickerTest, ABackgroundBuildThatFailsLeavesTheBucket) {
  const auto picker = make({plan_of(shape_of(4, 8, 8))});
  build_fails_ = true;
  const Policy policy{.build = Build::in_background};
  EXPECT_EQ(picker->pick(sizes(3, 7, 7), policy)->fit, Fit::bucket);
  while (picker->pick(sizes(3, 7, 7), {.buckets = false, .build = Build::in_background})
             .error()
             .code == ErrorCode::plan_pending) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(picker->pick(sizes(3, 7, 7), policy)->fit, Fit::bucket);
  EXPECT_EQ(builds_, 1);
}

TEST_F(PickerTest, ItsEndEndsABuild) {
  auto picker = make({plan_of(shape_of(4, 8, 8))});
  held_ = true;
  EXPECT_TRUE(picker->pick(sizes(3, 7, 7), {.build = Build::in_background}).ok());
  EXPECT_TRUE(picker->pick(sizes(2, 7, 7), {.build = Build::in_background}).ok());
  while (builds_ == 0) std::this_thread::sleep_for(milliseconds(1));
  picker.reset();
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(alive_.use_count(), 1) << "nothing is loaded any more";
}

TEST_F(PickerTest, WhatIsPickedOutlivesThePicker) {
  auto picker = make({plan_of(shape_of(4, 8, 8))});
  auto picked = picker->pick(sizes(4, 8, 8));
  picker.reset();
  EXPECT_EQ(alive_.use_count(), 2);
  EXPECT_THAT(picked->forward->text, HasSubstr("B=4"));
}

TEST_F(PickerTest, OfManyBuiltPlansTheLeastRecentlyUsedGoes) {
  most_built_ = 2;
  const auto picker = make({plan_of(shape_of(4, 8, 8, {}))});
  const Policy now{.build = Build::now};
  (void)picker->pick(sizes(1, 8, 8), {.buckets = false, .build = Build::now});
  (void)picker->pick(sizes(5, 8, 8), now);
  (void)picker->pick(sizes(1, 8, 8), now);
  EXPECT_EQ(builds_, 2);
  (void)picker->pick(sizes(6, 8, 8), now);
  EXPECT_EQ(alive_.use_count(), 1 + 2) << "the plan that came first was never loaded";
  std::vector<std::int64_t> batches;
  for (const plan::Shape& shape : picker->shapes()) batches.push_back(shape.sizes[Dim::B]);
  EXPECT_THAT(batches, ElementsAre(4, 1, 6));
  EXPECT_EQ(picker->pick(sizes(4, 8, 8))->fit, Fit::exact);
  EXPECT_EQ(picker->pick(sizes(1, 8, 8))->fit, Fit::exact);
}

// The last batch of an epoch has fewer sequences than the others.
TEST_F(PickerTest, ASweepOfBatchesBuildsNothingWhereLengthsPad) {
  const auto picker = make({plan_of(shape_of(32, 64, 64))});
  for (const std::int64_t batches : {32, 32, 32, 32, 32, 7}) {
    const auto picked = picker->pick(sizes(batches, 64, 64), {.build = Build::now});
    ASSERT_TRUE(picked.ok());
    EXPECT_EQ(picked->shape, shape_of(32, 64, 64));
    EXPECT_EQ(picked->fit, batches == 32 ? Fit::exact : Fit::bucket);
  }
  EXPECT_EQ(builds_, 0);
  EXPECT_EQ(loads_, 1);
}

TEST_F(PickerTest, ASweepOfBatchesBuildsOncePerSizeWhereNothingPads) {
  const auto picker = make({plan_of(shape_of(32, 64, 64, {}))});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::int64_t batches : {32, 32, 32, 32, 32, 7}) {
      const auto picked = picker->pick(sizes(batches, 64, 64), {.build = Build::now});
      ASSERT_TRUE(picked.ok());
      EXPECT_EQ(picked->shape.sizes[Dim::B], batches);
    }
  }
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(loads_, 2);
}

TEST_F(PickerTest, ThreadsShareLoadsAndBuilds) {
  constexpr int kThreads = 8, kRounds = 200;
  const auto picker = make({plan_of(shape_of(8, 64, 64)), plan_of(shape_of(4, 64, 64))});
  std::latch together(kThreads);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      together.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const std::int64_t batches = 1 + (i + thread) % 12;
        const Build build = i % 2 == 0 ? Build::now : Build::in_background;
        const auto picked = picker->pick(sizes(batches, 64, 64), {.build = build});
        if (picked.ok() ? picked->shape.sizes[Dim::B] < batches
                        : picked.error().code != ErrorCode::plan_pending) {
          ++wrong;
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  for (int batches = 1; batches <= 12; ++batches) (void)wait_for(*picker, sizes(batches, 64, 64));
  EXPECT_EQ(builds_, 10);
  std::set<std::string> distinct;
  for (const BuildRequest& request : requests_) {
    EXPECT_TRUE(distinct.insert(request.bindings.at("B")).second) << "built twice";
  }
  EXPECT_EQ(loads_, 2 + builds_);
}

TEST_F(PickerTest, KnownSizesDoNotWaitForABuild) {
  const auto picker = make({plan_of(shape_of(4, 8, 8, {}))});
  held_ = true;
  std::jthread builder([&] { (void)picker->pick(sizes(9, 8, 8), {.build = Build::now}); });
  while (builds_ == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(picker->pick(sizes(4, 8, 8))->fit, Fit::exact);  // hangs on failure
  EXPECT_FALSE(picker->pick(sizes(3, 8, 8)).ok());
  held_ = false;
}

}  // namespace
}  // namespace attn::picker
