#include "runtime/base/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace attn {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

FileDescriptor null_device(int flags) { return FileDescriptor(open("/dev/null", flags)); }

TEST(Descriptors, OwnerClosesOnce) {
  int fd = -1;
  {
    FileDescriptor first = null_device(O_RDONLY);
    fd = first.get();
    const FileDescriptor second = std::move(first);
    EXPECT_EQ(second.get(), fd);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(Descriptors, CloseTellsWhetherItWorked) {
  FileDescriptor file = null_device(O_RDONLY);
  const int fd = file.get();
  EXPECT_TRUE(file.close());
  EXPECT_FALSE(file.valid());
  EXPECT_FALSE(is_open(fd));
  EXPECT_TRUE(file.close()) << "there is none left";
  FileDescriptor gone = null_device(O_RDONLY);
  ::close(gone.get());
  EXPECT_FALSE(gone.close());
  EXPECT_EQ(errno, EBADF);
}

TEST(Descriptors, WhatIsWrittenIsRead) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const FileDescriptor out(fds[0]);
  FileDescriptor in(fds[1]);
  ASSERT_TRUE(write_all(in.get(), "some bytes"));
  in.close();
  EXPECT_EQ(read_all(out.get()), "some bytes");
}

TEST(Descriptors, FailuresKeepTheReason) {
  const FileDescriptor file = null_device(O_RDONLY);
  EXPECT_FALSE(write_all(file.get(), "x"));
  EXPECT_EQ(errno_text("write"), "write: Bad file descriptor");
  EXPECT_EQ(read_all(-1), std::nullopt);
}

}  // namespace
}  // namespace attn
