// Tests which of several cuDNN copies is chosen, among folders that the test creates. Their
// libraries only have a version (versioned_cudnn.cpp).
#include "runtime/cudnn/find.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "runtime/cudnn/library.h"
#include "tests/support/own_process.h"

namespace attn::cudnn {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FindCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::canonical(::testing::TempDir()) /
            (std::string("attn_find_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override {
    for (void* handle : handles_) dlclose(handle);
    fs::remove_all(root_);
  }

  // A prefix like that of a Python package: the header next to the library gives the version.
  fs::path package(const std::string& name, int version) {
    const fs::path folder = root_ / name;
    fs::create_directories(folder / "lib");
    fs::create_directories(folder / "include");
    fs::copy_file(library(version), folder / "lib/libcudnn.so.9");
    std::ofstream(folder / "include/cudnn_version.h")
        << "#define CUDNN_MAJOR " << version / 10000 << "\n#define CUDNN_MINOR "
        << version / 100 % 100 << "\n#define CUDNN_PATCHLEVEL " << version % 100 << "\n";
    return folder;
  }
  // A system folder: the file name gives the version.
  fs::path system(const std::string& name, int version) {
    const fs::path folder = root_ / name;
    fs::create_directories(folder);
    const std::string file = "libcudnn.so." + version_text(version);
    fs::copy_file(library(version), folder / file);
    fs::create_symlink(file, folder / "libcudnn.so.9");
    return folder;
  }
  // A copy of unknown version.
  fs::path unknown(const std::string& name, int version) {
    const fs::path folder = package(name, version);
    fs::remove_all(folder / "include");
    return folder;
  }

  Result<Found> find(std::vector<fs::path> folders, bool loaded = false) {
    Result<Found> found = find_cudnn({loaded, false, std::move(folders)});
    if (found.ok()) handles_.push_back(found->handle);
    return found;
  }
  void load(const fs::path& folder) {
    handles_.push_back(dlopen((folder / "lib/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_GLOBAL));
    ASSERT_NE(handles_.back(), nullptr);
  }

 private:
  static fs::path library(int version) {
    return fs::path(ATTN_VERSIONED_FOLDER) / ("libcudnn_" + std::to_string(version) + ".so");
  }

  fs::path root_;
  std::vector<void*> handles_;
};

TEST_F(FindCudnn, TheNewestIsTakenWhereverItStands) {
  const fs::path old = system("system", 91400), good = package("package", 91900),
                 best = package("newer", 92400);
  EXPECT_EQ(find({old, good})->path, (good / "lib/libcudnn.so.9").string());
  EXPECT_EQ(find({old, good})->version, 91900);
  EXPECT_EQ(find({old, good, best})->version, 92400);
  EXPECT_EQ(find({best, good, old})->version, 92400);
}

TEST_F(FindCudnn, OfOneVersionTheFirst) {
  const fs::path first = package("first", 91900), second = package("second", 91900);
  EXPECT_EQ(find({first, second})->path, (first / "lib/libcudnn.so.9").string());
}

TEST_F(FindCudnn, OlderOnesAreRefusedWithTheirPaths) {
  const fs::path one = system("system", 91400), two = package("package", 91200);
  const Error error = find({one, two}).error();
  EXPECT_EQ(error.code, ErrorCode::cudnn);
  EXPECT_EQ(error.message, (one / "libcudnn.so.9").string() + " is cuDNN 9.14.0, which is too old");
  EXPECT_THAT(error.notes,
              ElementsAre("attnc needs cuDNN 9.19.0 or newer",
                          "also found " + (two / "lib/libcudnn.so.9").string() + ": cuDNN 9.12.0"));
}

TEST_F(FindCudnn, OneOfUnknownVersionIsAskedAndComesLast) {
  const fs::path good = unknown("good", 92400), known = package("known", 91900),
                 old = unknown("old", 91400);
  EXPECT_EQ(find({good})->version, 92400);
  EXPECT_EQ(find({good, known})->version, 91900);
  EXPECT_THAT(find({old}).error().message, HasSubstr("cuDNN 9.14.0, which is too old"));
}

TEST_F(FindCudnn, TheOneThatIsLoadedIsTaken) {
  attn::testing::expect_in_own_process([this] {
    const fs::path loaded = package("loaded", 91900), newer = package("newer", 92400);
    load(loaded);
    EXPECT_EQ(find({newer}, true)->path, (loaded / "lib/libcudnn.so.9").string());
    EXPECT_EQ(find({newer})->version, 92400) << "a folder that is asked for alone";
    TearDown();
  });
}

TEST_F(FindCudnn, OneThatIsLoadedAndTooOldIsRefusedWithBothPaths) {
  attn::testing::expect_in_own_process([this] {
    const fs::path loaded = package("loaded", 91400), newer = package("newer", 92400);
    load(loaded);
    const Error error = find({newer}, true).error();
    EXPECT_EQ(error.message,
              (loaded / "lib/libcudnn.so.9").string() +
                  " is cuDNN 9.14.0, which is too old, and this process has already loaded it");
    EXPECT_THAT(error.notes, Contains("also found " + (newer / "lib/libcudnn.so.9").string() +
                                      ": cuDNN 9.24.0"));
    TearDown();
  });
}

TEST_F(FindCudnn, WithoutAnyThePlacesAreNamed) {
  const Error error = find({"/no/such/folder"}).error();
  EXPECT_EQ(error.message, "libcudnn.so.9 was not found");
  EXPECT_THAT(error.notes, ElementsAre("/no/such/folder: no libcudnn.so.9"));
}

}  // namespace
}  // namespace attn::cudnn
