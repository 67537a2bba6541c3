// Tests which NCCL is loaded, and what is said if there is none that will do. The tests that load
// one come last: it stays loaded.
#include "runtime/ranks/nccl.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/standin/standins.h"

namespace attn::ranks {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string stub(int version) {
  return std::string(ATTN_NCCL_STUBS) + "/nccl_" + std::to_string(version);
}

TEST(Nccl, WithoutAnyThePlacesAreNamed) {
  const Error error = Nccl::load("/no/such/folder").error();
  EXPECT_EQ(error.code, ErrorCode::nccl);
  EXPECT_EQ(error.message, "libnccl.so.2 was not found");
  EXPECT_THAT(error.notes, ElementsAre("/no/such/folder: no libnccl.so.2"));
}

TEST(Nccl, AFileThatIsNoLibraryIsNamedWithTheLinkersWords) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("attn_nccl_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "libnccl.so.2") << "no library";
  const Error error = Nccl::load(folder.string()).error();
  fs::remove_all(folder);
  ASSERT_THAT(error.notes, SizeIs(1));
  EXPECT_THAT(error.notes[0], HasSubstr((folder / "libnccl.so.2").string()));
  EXPECT_THAT(error.notes[0], Not(HasSubstr("no libnccl.so.2"))) << "there is one";
}

TEST(Nccl, OlderOnesAreRefused) {
  Error error = Nccl::load(stub(21400)).error();
  EXPECT_EQ(error.code, ErrorCode::nccl);
  EXPECT_EQ(error.message, stub(21400) + "/libnccl.so.2 is NCCL 2.14.0, which is too old");
  EXPECT_THAT(error.notes, ElementsAre("attnc needs NCCL 2.18.0 or newer"));
  EXPECT_THAT(Nccl::load(stub(2708)).error().message, HasSubstr("NCCL 2.7.8, which is too old"));
}

TEST(Nccl, OneThatLacksAFunctionIsRefused) {
  EXPECT_EQ(Nccl::load(stub(22800)).error().message,
            stub(22800) + "/libnccl.so.2 has no ncclGetErrorString");
}

TEST(Nccl, TheVariableNamesTheOnlyFolder) {
  if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    GTEST_SKIP() << "this process has loaded one, which comes first";
  }
  setenv("ATTN_NCCL_DIR", "/no/such/folder", 1);
  EXPECT_THAT(Nccl::load().error().notes, ElementsAre("/no/such/folder: no libnccl.so.2"));
  setenv("ATTN_NCCL_DIR", standin::folder().c_str(), 1);
  const auto nccl = Nccl::load();
  unsetenv("ATTN_NCCL_DIR");
  ASSERT_TRUE(nccl.ok()) << nccl.error().to_text();
  EXPECT_EQ((*nccl)->path(), standin::folder() + "/libnccl.so.2");
  EXPECT_EQ((*nccl)->version(), 22800);
}

TEST(Nccl, TheOneThatIsLoadedIsTakenUnlessAFolderIsGiven) {
  void* loaded = dlopen((standin::folder() + "/libnccl.so.2").c_str(), RTLD_NOW);
  ASSERT_NE(loaded, nullptr) << dlerror();
  setenv("ATTN_NCCL_DIR", "/no/such/folder", 1);
  const auto nccl = Nccl::load();
  unsetenv("ATTN_NCCL_DIR");
  ASSERT_TRUE(nccl.ok()) << nccl.error().to_text();
  EXPECT_EQ((*nccl)->path(), standin::folder() + "/libnccl.so.2");
  EXPECT_THAT(Nccl::load(stub(21400)).error().message, HasSubstr("too old"));
  dlclose(loaded);
}

TEST(Nccl, AFailedCallBecomesAnErrorWithNcclsWords) {
  const auto nccl = Nccl::load(standin::folder());
  ASSERT_TRUE(nccl.ok()) << nccl.error().to_text();
  EXPECT_TRUE((*nccl)->check(kNcclSuccess, "sending").ok());
  EXPECT_TRUE((*nccl)->check(kNcclInProgress, "sending").ok());
  const Status failed = (*nccl)->check(4, "sending");
  EXPECT_EQ(failed.error().code, ErrorCode::nccl);
  EXPECT_EQ(failed.error().message, "NCCL: sending: invalid argument");
}

TEST(Nccl, VersionsAreShownAsNvidiaWritesThem) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace attn::ranks
