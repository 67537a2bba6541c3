#include "runtime/base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RegularFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("attn_regular_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string error_of(const std::string& path) {
    const Result<std::string> read = read_regular_file(path, 100);
    return read.ok() ? "read" : read.error().message;
  }

 private:
  fs::path folder_;
};

TEST_F(RegularFile, IsReadUpToTheLimit) {
  std::ofstream(path("file")) << std::string(200000, 'x');
  EXPECT_EQ(*read_regular_file(path("file"), 1 << 20), std::string(200000, 'x'));
  EXPECT_EQ(*read_regular_file(path("file"), 70000), std::string(70000, 'x'));
  fs::create_symlink(path("file"), path("link"));
  EXPECT_EQ(read_regular_file(path("link"), 1 << 20)->size(), 200000U);
}

// Opening a FIFO without a writer would block, and /dev/zero has no end.
TEST_F(RegularFile, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  fs::create_symlink(path("fifo"), path("link"));
  EXPECT_THAT(error_of(path("fifo")), HasSubstr("it is a FIFO"));
  EXPECT_THAT(error_of(path("link")), HasSubstr("it is a FIFO"));
  EXPECT_EQ(error_of("/dev/zero"), "cannot read /dev/zero: it is a device, not a regular file");
  EXPECT_THAT(error_of(path("")), HasSubstr("Is a directory"));
  EXPECT_THAT(error_of(path("none")), HasSubstr("No such file"));
}

}  // namespace
}  // namespace attn
