#include "runtime/worker/process.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "tests/unit/runtime/worker/fixtures.h"

namespace attn::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

Result<Ending> shell(const std::string& script, std::string_view input, milliseconds timeout,
                     const LineSink& sink) {
  return run_process({"/bin/sh", "-c", script}, input, {timeout}, sink);
}

bool ignore(std::string_view) { return false; }

// Whether the process is gone, or a zombie that its new parent has not reaped yet.
bool ends_soon(const std::string& pid) {
  const auto gone = shell("for i in 1 2 3 4 5 6 7 8 9 10; do grep -q '^State:.[^ZX]' /proc/" + pid +
                              "/status 2>/dev/null || exit 0; sleep 0.2; done; exit 1",
                          "", seconds(20), ignore);
  return gone.ok() && gone->code == 0;
}

TEST(Process, LinesAndExitCode) {
  std::vector<std::string> lines;
  const auto ending = shell("echo one; printf 'two\\nthree'; echo oops >&2; exit 7", "",
                            seconds(20), [&](std::string_view line) {
                              lines.emplace_back(line);
                              return false;
                            });
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::exited);
  EXPECT_EQ(ending->code, 7);
  EXPECT_EQ(ending->error_output, "oops\n");
  EXPECT_THAT(lines, ElementsAre("one", "two"));  // "three" is not a complete line
}

TEST(Process, AWorkerIsMarkedOnceAndKeepsTheEnvironment) {
  ASSERT_EQ(setenv(kWorkerMark, "of the caller", 1), 0);
  ASSERT_EQ(setenv("ATTN_TEST_VARIABLE", "kept", 1), 0);
  const auto environment = [](bool of_a_worker) {
    std::vector<std::string> lines;
    const auto ending = run_process({"/usr/bin/env"}, "", {seconds(20), {}, 0, of_a_worker},
                                    [&](std::string_view line) {
                                      if (line.starts_with("ATTN_")) lines.emplace_back(line);
                                      return false;
                                    });
    EXPECT_TRUE(ending.ok());
    return lines;
  };
  const std::vector<std::string> worker = environment(true), other = environment(false);
  unsetenv(kWorkerMark);
  unsetenv("ATTN_TEST_VARIABLE");
  EXPECT_THAT(worker, IsSupersetOf({"ATTN_TEST_VARIABLE=kept", "ATTN_WORKER=1"}));
  EXPECT_THAT(worker, Not(Contains("ATTN_WORKER=of the caller")));
  EXPECT_THAT(other, Contains("ATTN_TEST_VARIABLE=kept"));
  EXPECT_THAT(other, Not(Contains(StartsWith("ATTN_WORKER="))));
}

TEST(Process, LargeInputAndOutputDoNotWaitForEachOther) {
  const std::string input(std::size_t{32} << 20, 'x');
  std::size_t received = 0;
  // Writes as much as it reads, also to its error stream, before it reads its input.
  const auto ending = shell(
      "head -c 8000000 /dev/zero | tr '\\0' 'y'; echo; head -c 300000 /dev/zero >&2; tr x z; echo",
      input, seconds(60), [&](std::string_view line) {
        received += line.size();
        return false;
      });
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::exited);
  EXPECT_EQ(received, 8'000'000U + input.size());
  EXPECT_LE(ending->error_output.size(), 4096U);
}

TEST(Process, InputThatNobodyReads) {
  const std::string input(std::size_t{8} << 20, 'x');
  const auto ending = shell("exit 0", input, seconds(20), ignore);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::exited);
}

TEST(Process, Signal) {
  const auto ending = shell("kill -SEGV $$", "", seconds(20), ignore);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::signalled);
  EXPECT_EQ(ending->signal, SIGSEGV);
}

TEST(Process, TimeoutKillsWhatTheChildStarted) {
  std::string grandchild;
  const auto ending =
      shell("sleep 300 & echo $!; wait", "", milliseconds(300), [&](std::string_view line) {
        grandchild = line;
        return false;
      });
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::timed_out);
  EXPECT_TRUE(ends_soon(grandchild));
}

// The child leads its own group, so killing the application's group does not reach it.
TEST(Process, AChildEndsWhenItsCallerIsKilled) {
  std::string child;
  const auto ending =
      run_process({ATTN_WORKER_PROGRAM, "call"}, "", {seconds(60)}, [&](std::string_view line) {
        child = line;
        return true;  // kills the application
      });
  ASSERT_TRUE(ending.ok());
  ASSERT_FALSE(child.empty());
  EXPECT_TRUE(ends_soon(child)) << child;
}

TEST(Process, AChildWhoseCallerIsDeadAlreadyEndsAtOnce) {
  const auto ending = shell("ATTN_CALLER='999999999 300' exec " ATTN_WORKER_PROGRAM " sleep", "",
                            seconds(20), ignore);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::signalled);
  EXPECT_EQ(ending->signal, SIGKILL);
}

// So that the child's own children are not bound to its caller.
TEST(Process, TheCallerIsReadOnce) {
  setenv(kCallerMark, fmt::format("{} 300", getppid()).c_str(), 1);
  end_with_caller();
  ::alarm(0);
  prctl(PR_SET_PDEATHSIG, 0);
  EXPECT_EQ(std::getenv(kCallerMark), nullptr);
}

// Also a child started by a script, which is not killed with its caller.
TEST(Process, AChildEndsByItselfAfterItsTime) {
  const auto ending =
      shell("ATTN_CALLER=\"$$ 1\"; export ATTN_CALLER; " ATTN_WORKER_PROGRAM " sleep", "",
            seconds(20), ignore);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::exited);
  EXPECT_EQ(ending->code, 128 + SIGALRM);
}

TEST(Process, SilentChildThatClosedItsOutputTimesOut) {
  const auto ending = shell("exec >&- 2>&-; sleep 300", "", milliseconds(300), ignore);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::timed_out);
}

TEST(Process, StoppedByTheSink) {
  const auto ending =
      shell("echo enough; sleep 300", "", seconds(60), [](std::string_view) { return true; });
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::stopped);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// At any time: while reading, waiting for a silent child, or before it starts.
TEST(Process, CancelledByTheCaller) {
  for (const char* script : {"echo first; sleep 300", "exec >&- 2>&-; sleep 300"}) {
    for (const milliseconds delay : {milliseconds(0), milliseconds(200)}) {
      const std::size_t before = testing::open_descriptors();
      std::stop_source source;
      std::jthread canceller;
      if (delay.count() == 0) {
        source.request_stop();
      } else {
        canceller = std::jthread([&] {
          std::this_thread::sleep_for(delay);
          source.request_stop();
        });
      }
      const auto ending =
          run_process({"/bin/sh", "-c", script}, "", {seconds(60), source.get_token()}, ignore);
      ASSERT_TRUE(ending.ok());
      EXPECT_EQ(ending->how, Ending::How::cancelled) << script;
      EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "it was reaped";
      EXPECT_EQ(testing::open_descriptors(), before);
    }
  }
}

TEST(Process, ProgramThatDoesNotExist) {
  const std::size_t before = testing::open_descriptors();
  const auto ending = run_process({"/no/such/program"}, "", {seconds(1)}, ignore);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().code, ErrorCode::worker);
  EXPECT_THAT(ending.error().message, HasSubstr("/no/such/program"));
  EXPECT_EQ(testing::open_descriptors(), before);
}

TEST(Process, NoCommand) {
  const auto ending = run_process({}, "", {seconds(1)}, ignore);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().code, ErrorCode::worker);
}

// A timer interrupts every system call repeatedly.
TEST(Process, SurvivesSignalsOfTheCaller) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  sigaction(SIGALRM, &action, &before);
  const itimerval often{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  std::size_t received = 0;
  const auto ending = shell("sleep 0.3; tr x y; echo", std::string(1 << 20, 'x'), seconds(60),
                            [&](std::string_view line) {
                              received += line.size();
                              return false;
                            });
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::exited);
  EXPECT_EQ(received, std::size_t{1} << 20);
}

TEST(Process, CallerThatIgnoresItsChildren) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const auto ending = shell("exit 5", "", seconds(20), ignore);
  signal(SIGCHLD, before);
  ASSERT_TRUE(ending.ok());
  EXPECT_EQ(ending->how, Ending::How::unknown);
}

}  // namespace
}  // namespace attn::worker
