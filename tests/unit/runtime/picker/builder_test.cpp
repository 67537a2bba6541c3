// Tests builds in a child process, a script that simulates every behavior. attnc_test.cpp tests
// attnc itself.
#include "runtime/picker/builder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/picker/build_folder.h"
#include "tests/unit/runtime/picker/picker_testing.h"

namespace attn::picker {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;
using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kSpec = "attention x(w = 32) { dims Sq; }\n";

// A test's temporary files are in a separate folder, which must be empty at the end.
class BuilderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("attn_builder_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(folder_ / "tmp");
    setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    EXPECT_TRUE(fs::is_empty(folder_ / "tmp")) << "nothing stays behind";
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child stays behind";
    EXPECT_EQ(errno, ECHILD);
    fs::remove_all(folder_);
  }

  // This script replaces attnc; $OUT is the path of the plan to write.
  AttncOptions scripted(const std::string& script) {
    const std::string path = (folder_ / "attnc.sh").string();
    std::ofstream(path) << "#!/bin/sh\nOUT=; for a in \"$@\"; do [ \"$last\" = --output ] && "
                           "OUT=$a; last=$a; done\n"
                        << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    AttncOptions options;
    options.command = {path};
    return options;
  }

  Result<plan::Bundle> run(AttncOptions options, std::stop_token stop = {}) {
    return attnc_builder(std::move(options))({kSpec, {{"Sq", "64"}, {"w", "16"}}}, stop);
  }

  fs::path folder_;
};

TEST_F(BuilderTest, LoadsWhatAttncWrote) {
  const plan::Bundle bundle{{plan_of(shape_of(2, 3, 5))}};
  plan::Bundle written = bundle;
  const std::string ready = (folder_ / "ready.attnplan").string();
  ASSERT_TRUE(plan::save(written, ready).ok());
  AttncOptions options = scripted("cp " + ready + " $OUT; cp \"$2\" " + folder_.string() +
                                  "/spec; echo \"$@\" > " + folder_.string() + "/arguments");
  options.target = plan::Target{"NVIDIA H200/2", 90, "{\"deviceVer\": 900}"};
  options.cudnn_folder = "/some/cudnn";
  options.arguments = {"--direction", "fwd"};
  const auto built = run(options);
  ASSERT_TRUE(built.ok()) << built.error().to_text();
  EXPECT_EQ(*built, bundle);
  std::ifstream spec(folder_ / "spec"), arguments(folder_ / "arguments");
  const std::string text((std::istreambuf_iterator<char>(spec)), {});
  EXPECT_EQ(text, kSpec);
  std::string line;
  std::getline(arguments, line);
  EXPECT_THAT(line, HasSubstr("compile " + (folder_ / "tmp").string()));
  EXPECT_THAT(line, HasSubstr("/NVIDIA H200_2.json --cudnn /some/cudnn --bind Sq=64 --bind w=16 "
                              "--direction fwd"));
}

TEST_F(BuilderTest, WhatAttncReportsIsTheError) {
  const auto built = run(scripted(
      "echo '{\"error\": {\"code\": \"unsupported\", \"message\": \"no engine\", \"notes\": "
      "[\"a\", \"b\"],'; echo '\"detail\": {\"line\": 3}}}'; echo words >&2; exit 3"));
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, ErrorCode::unsupported);
  EXPECT_EQ(built.error().message, "no engine");
  EXPECT_EQ(built.error().notes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(built.error().payload, "{\"line\":3}");
}

TEST_F(BuilderTest, AChildThatFailsOtherwiseIsAnError) {
  const auto expect = [this](const std::string& script, const std::string& message) {
    const auto built = run(scripted(script));
    ASSERT_FALSE(built.ok()) << script;
    EXPECT_EQ(built.error().code, ErrorCode::worker) << script;
    EXPECT_EQ(built.error().message, message);
  };
  expect("kill -SEGV $$", "attnc was killed by SIGSEGV");
  expect("exit 0", "attnc exited without writing a plan");
  expect("echo nonsense; echo why >&2; exit 9", "attnc exited with code 9");
  expect("echo '{\"error\": 3}'; exit 4", "attnc exited with code 4");
  EXPECT_THAT(run(scripted("echo why >&2; exit 9")).error().notes,
              Contains("its error output: why\n"));
  EXPECT_EQ(run(scripted("echo no > $OUT")).error().code, ErrorCode::plan_foreign);
  AttncOptions missing;
  missing.command = {"/no/such/attnc"};
  EXPECT_EQ(run(missing).error().code, ErrorCode::worker);
}

// More output than a pipe holds, on both streams.
TEST_F(BuilderTest, ATalkativeChildIsReadToItsEnd) {
  const auto built =
      run(scripted("head -c 3000000 /dev/zero | tr '\\0' x; echo; "
                   "head -c 3000000 /dev/zero >&2; exit 7"));
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().message, "attnc exited with code 7");
}

TEST_F(BuilderTest, AChildThatTakesTooLongIsEnded) {
  AttncOptions options = scripted("sleep 300");
  options.timeout = seconds(1);
  const auto built = run(options);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().message, "attnc took longer than 1 s and was killed");
}

// Removes what killed applications left, and nothing else.
TEST_F(BuilderTest, FoldersOfTheDeadAreRemoved) {
  const fs::path tmp = folder_ / "tmp";
  const auto named = [&](const std::string& end) { return tmp / ("attn-picker-build-" + end); };
  const fs::path stale = named("killed"), young = named("youngA"), locked = named("locked"),
                 open = named("opened"), unmarked = named("others"), longer = named("others-asan"),
                 other = tmp / "attn-build-asan";
  for (const fs::path& path : {stale, young, locked, open, unmarked, longer, other}) {
    fs::create_directories(path);
    std::ofstream(path / "spec.attn") << kSpec;
    if (path != unmarked) std::ofstream(path / ".made-by-attn-picker");
    fs::permissions(path, path == open ? fs::perms(0755) : fs::perms::owner_all);
    if (path != young) fs::last_write_time(path, fs::file_time_type::clock::now() - 1h);
  }
  fs::create_directory_symlink(other, named("linked"));
  const int lock = ::open(locked.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  (void)run(scripted("exit 1"));
  EXPECT_FALSE(fs::exists(stale));
  for (const fs::path& path : {young, locked, open, unmarked, longer, other}) {
    EXPECT_TRUE(fs::exists(path / "spec.attn")) << path;
    fs::remove_all(path);
  }
  fs::remove(named("linked"));
  ::close(lock);
}

// A folder that cannot be locked would look like that of a killed process.
TEST_F(BuilderTest, WithoutDescriptorsThereIsNoFolder) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto folder = BuildFolder::create();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::io);
}

TEST_F(BuilderTest, AFolderLooksLikeOneThatASweepRemoves) {
  const auto folder = BuildFolder::create();
  ASSERT_TRUE(folder.ok()) << folder.error().to_text();
  EXPECT_TRUE(fs::is_regular_file(folder->file(".made-by-attn-picker")));
  const fs::path path = fs::path(folder->file("x")).parent_path();
  EXPECT_EQ(path.filename().string().size(), std::string("attn-picker-build-XXXXXX").size());
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
}

TEST_F(BuilderTest, AStopEndsTheChild) {
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(milliseconds(200));
    source.request_stop();
  });
  const auto built = run(scripted("sleep 300"), source.get_token());
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().message, "the build was stopped");
}

}  // namespace
}  // namespace attn::picker
