// cmake/older_glibc.cpp, which is linked into this program as into the files of the wheel.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "runtime/base/descriptors.h"

namespace attn::older_glibc {

int add_closes(posix_spawn_file_actions_t* actions, int from);

namespace {

// Whether a child has a file of this process that is not closed at its exec.
bool child_has(int descriptor, posix_spawn_file_actions_t* actions) {
  const std::string script = fmt::format("test -e /proc/$$/fd/{}", descriptor);
  const char* arguments[] = {"/bin/sh", "-c", script.c_str(), nullptr};
  pid_t pid = -1;
  EXPECT_EQ(
      posix_spawn(&pid, arguments[0], actions, nullptr, const_cast<char**>(arguments), environ), 0);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(OlderGlibc, FilesThatAreOpenAreClosedInAChild) {
  const FileDescriptor low(open("/dev/null", O_RDONLY)), high(fcntl(low.get(), F_DUPFD, 500));
  ASSERT_GE(high.get(), 500);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  EXPECT_TRUE(child_has(low.get(), &actions));
  EXPECT_TRUE(child_has(high.get(), &actions));
  EXPECT_EQ(add_closes(&actions, high.get()), 0);
  EXPECT_TRUE(child_has(low.get(), &actions));
  EXPECT_FALSE(child_has(high.get(), &actions));
  EXPECT_EQ(add_closes(&actions, STDERR_FILENO + 1), 0);
  EXPECT_FALSE(child_has(low.get(), &actions));
  posix_spawn_file_actions_destroy(&actions);
}

TEST(OlderGlibc, NamesOfSignalsAreThoseOfTheSystem) {
  EXPECT_STREQ(sigabbrev_np(SIGSEGV), "SEGV");
  EXPECT_EQ(sigabbrev_np(1000), nullptr);
}

}  // namespace
}  // namespace attn::older_glibc
