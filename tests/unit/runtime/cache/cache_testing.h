// Keys, plans and folders for cache tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "runtime/cache/key.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::cache::testing {

inline Key key(const std::string& text) { return Key(plan::Signature{text, hash128(text)}); }

inline Key key(const plan::Plan& plan) { return Key(plan.signature); }

// The sample plan for a numbered GPU, so that each number has its own signature.
inline plan::Plan numbered_plan(int number) {
  plan::Plan plan = plan::testing::sample_plan();
  plan.target.name = "gpu" + std::to_string(number);
  return plan::testing::signed_again(std::move(plan));
}

// A folder for each test; it does not exist yet.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(::testing::TempDir()) /
            (std::string("attn_") + test->test_suite_name() + test->name() +
             std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  const std::filesystem::path& root() const { return root_; }
  std::string folder() const { return (root_ / "cache").string(); }
  std::size_t file_count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder()),
                                                  std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path root_;
};

}  // namespace attn::cache::testing
