#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/plan/bundle.h"
#include "runtime/plan/container.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PlanStorage : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("attn_plan_storage_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  fs::path folder_;
};

TEST_F(PlanStorage, SavesAndLoadsAndReplaces) {
  Plan plan = testing::sample_plan();
  ASSERT_TRUE(save(plan, path("p")).ok());
  EXPECT_EQ(*load(path("p")), plan);
  plan.spec_name = "another";
  ASSERT_TRUE(save(plan, path("p")).ok());
  EXPECT_EQ(load(path("p"))->spec_name, "another");
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PlanStorage, MissingFilesAndFoldersAreIoErrors) {
  EXPECT_EQ(load(path("none")).error().code, ErrorCode::io);
  EXPECT_EQ(load(path("")).error().code, ErrorCode::io);  // the folder itself
  const Status saved = save(testing::sample_plan(), path("none/p"));
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::io);
  EXPECT_THAT(saved.error().message, HasSubstr("none/p"));
}

TEST_F(PlanStorage, AFailedSaveLeavesNothingBehind) {
  fs::create_directories(path("p/inside"));  // a folder with content cannot be replaced
  EXPECT_EQ(save(testing::sample_plan(), path("p")).error().code, ErrorCode::io);
  EXPECT_EQ(file_count(), 1U);
}

// Process ids are reused, and so are names of temporary files.
TEST_F(PlanStorage, WhatKilledWritersLeftIsNotInTheWay) {
  for (int i = 0; i < 200; ++i) {
    std::ofstream(
        path(("p." + std::to_string(::getpid()) + "." + std::to_string(i) + ".tmp").c_str()))
        << "half";
  }
  const Plan plan = testing::sample_plan();
  ASSERT_TRUE(save(plan, path("p")).ok());
  EXPECT_EQ(*load(path("p")), plan);
  EXPECT_EQ(file_count(), 201U);
}

TEST_F(PlanStorage, ErrorsNameTheFile) {
  std::ofstream(path("p")) << "hello";
  const Result<Plan> plan = load(path("p"));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::plan_foreign);
  EXPECT_THAT(plan.error().message, HasSubstr(path("p")));
}

// A sparse file far larger than any plan: reading its start is enough.
TEST_F(PlanStorage, AForeignFileIsKnownByItsStart) {
  std::ofstream(path("p")) << "#!/bin/sh\n" << std::string(100, ' ');
  fs::resize_file(path("p"), std::uintmax_t{1} << 36);
  const Error error = load(path("p")).error();
  EXPECT_EQ(error.code, ErrorCode::plan_foreign);
  EXPECT_THAT(error.message, HasSubstr("is not an attnc plan"));
}

TEST_F(PlanStorage, NoMoreIsReadThanTheHeaderSays) {
  ASSERT_TRUE(save(testing::sample_plan(), path("p")).ok());
  fs::resize_file(path("p"), std::uintmax_t{1} << 36);
  EXPECT_THAT(load(path("p")).error().message, HasSubstr("has 1 bytes after its end"));
}

// Also files without a header, and bytes past the end that a header gives.
TEST_F(PlanStorage, ACheckIsGivenTheWholeFile) {
  std::string seen;
  const auto look = [&](bool accepts) {
    return load_bundle(path("p"), [&seen, accepts](std::string_view bytes) -> Status {
      seen = bytes;
      if (accepts) return {};
      return {ErrorCode::plan_refused, "not trusted"};
    });
  };
  std::ofstream(path("p")) << "not a plan";
  EXPECT_EQ(look(false).error().code, ErrorCode::plan_refused);
  EXPECT_EQ(seen, "not a plan");
  EXPECT_EQ(look(true).error().code, ErrorCode::plan_foreign);

  const std::string longer = serialize(testing::sample_plan()) + "two more";
  std::ofstream(path("p"), std::ios::binary) << longer;
  EXPECT_EQ(look(true).error().code, ErrorCode::plan_damaged);
  EXPECT_EQ(seen, longer);
}

// Readers reject kernels that unpack to so much more than the file as damage.
TEST_F(PlanStorage, WhatCouldNotBeReadIsNotWritten) {
  Plan plan = testing::sample_plan();
  plan.compiled[0].cudnn_plan.assign(kMaxPlanBytes, ' ');
  ASSERT_GT(kMaxPlanBytes, most_unpacked(0));
  for (const Status& saved : {save(plan, path("p")), save(Bundle{{plan}}, path("p"))}) {
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(file_count(), 0U);
}

// Refuses them without waiting for a writer.
TEST_F(PlanStorage, FifosAndDevicesAreRefused) {
  ASSERT_EQ(::mkfifo(path("p").c_str(), 0600), 0);
  EXPECT_EQ(load(path("p")).error().code, ErrorCode::io);
  EXPECT_THAT(load(path("p")).error().message, HasSubstr("it is a FIFO"));
  EXPECT_THAT(load("/dev/zero").error().message, HasSubstr("it is a device"));
}

TEST_F(PlanStorage, WritersAtOnceLeaveOneWholePlan) {
  const Plan plan = testing::sample_plan();
  std::vector<std::thread> writers;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) failures += save(plan, path("p")).ok() ? 0 : 1;
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(*load(path("p")), plan);
  EXPECT_EQ(file_count(), 1U);
}

}  // namespace
}  // namespace attn::plan
