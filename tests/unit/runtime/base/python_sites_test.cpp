#include "runtime/base/python_sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace attn {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class PythonSites : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    unsetenv("CONDA_PREFIX");
    unsetenv("VIRTUAL_ENV");
    setenv("PATH", "/nonexistent", 1);
  }
  ~PythonSites() override { setenv("PATH", path_.c_str(), 1); }

  fs::path site(const std::string& prefix, const std::string& python = "python3.12") {
    const fs::path site = folder_ / prefix / "lib" / python / "site-packages";
    fs::create_directories(site);
    return site;
  }

  // Tests may run in parallel.
  fs::path folder_ = fs::path(::testing::TempDir()) /
                     ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::string path_ = std::getenv("PATH");
};

TEST_F(PythonSites, NoneWithoutAnEnvironment) { EXPECT_THAT(python_sites(), ElementsAre()); }

TEST_F(PythonSites, AreThoseOfTheActiveEnvironmentFirst) {
  const fs::path active = site("active");
  const fs::path conda = site("conda");
  setenv("VIRTUAL_ENV", (folder_ / "active").c_str(), 1);
  setenv("CONDA_PREFIX", (folder_ / "conda").c_str(), 1);
  EXPECT_THAT(python_sites(), ElementsAre(active, conda));
}

TEST_F(PythonSites, AreThoseOfTheFirstPythonInThePath) {
  const fs::path first = site("first");
  site("second");
  for (const char* name : {"first", "second"}) {
    fs::create_directories(folder_ / name / "bin");
    std::ofstream(folder_ / name / "bin" / "python3") << "";
  }
  const std::string empty = folder_ / "empty";
  setenv("PATH",
         (empty + ":" + (folder_ / "first/bin").string() + ":" + (folder_ / "second/bin").string())
             .c_str(),
         1);
  EXPECT_THAT(python_sites(), ElementsAre(first));
  setenv("VIRTUAL_ENV", (folder_ / "first").c_str(), 1);
  EXPECT_THAT(python_sites(), ElementsAre(first)) << "each once";
}

TEST_F(PythonSites, OfSeveralVersionsAreSorted) {
  const fs::path old = site("both", "python3.11");
  const fs::path later = site("both", "python3.12");
  setenv("VIRTUAL_ENV", (folder_ / "both").c_str(), 1);
  EXPECT_THAT(python_sites(), ElementsAre(old, later));
}

TEST_F(PythonSites, OfAPrefixThatIsNotAbsoluteAreNone) {
  setenv("VIRTUAL_ENV", ".", 1);
  EXPECT_THAT(python_sites(), ElementsAre());
}

}  // namespace
}  // namespace attn
