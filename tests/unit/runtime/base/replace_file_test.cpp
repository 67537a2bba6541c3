#include "runtime/base/replace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "runtime/base/regular_file.h"

namespace attn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReplaceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("attn_replace_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::ptrdiff_t file_count() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  static std::string text_of(const std::string& path) {
    return read_regular_file(path, 1 << 20).value();
  }

 private:
  fs::path folder_;
};

TEST_F(ReplaceFile, MakesAndReplaces) {
  ASSERT_TRUE(replace_file(path("x"), "one").ok());
  EXPECT_EQ(text_of(path("x")), "one");
  ASSERT_TRUE(replace_file(path("x"), std::string(100'000, 'y')).ok());
  EXPECT_EQ(text_of(path("x")), std::string(100'000, 'y'));
  EXPECT_EQ(file_count(), 1);
}

TEST_F(ReplaceFile, KeepsPermissionsAndFollowsLinks) {
  std::ofstream(path("x")) << "old";
  fs::permissions(path("x"), fs::perms(0640));
  fs::create_symlink("x", path("link"));
  ASSERT_TRUE(replace_file(path("link"), "new").ok());
  EXPECT_EQ(text_of(path("x")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms(0640));
}

TEST_F(ReplaceFile, WritesToWhatIsNoFile) {
  EXPECT_TRUE(replace_file("/dev/null", "text").ok());
  EXPECT_EQ(fs::status("/dev/null").type(), fs::file_type::character);
  const Status full = replace_file("/dev/full", "text");
  ASSERT_FALSE(full.ok());
  EXPECT_THAT(full.error().message, HasSubstr("cannot write /dev/full: No space left on device"));
  EXPECT_EQ(replace_file(path("."), "text").error().code, ErrorCode::io);
  EXPECT_EQ(replace_file(path("none/x"), "text").error().code, ErrorCode::io);
  EXPECT_EQ(file_count(), 0);
}

TEST_F(ReplaceFile, WhatCannotBeWrittenLeavesTheOldFile) {
  std::ofstream(path("x")) << "old";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const Status status = replace_file(path("x"), std::string(2000, 'y'));
  const Status fresh = replace_file(path("fresh"), std::string(2000, 'y'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(status.ok() || fresh.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_THAT(status.error().message, HasSubstr("File too large"));
  EXPECT_EQ(text_of(path("x")), "old");
  EXPECT_EQ(file_count(), 1);
}

}  // namespace
}  // namespace attn
