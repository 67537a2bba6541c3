#include "runtime/cache/folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace attn::cache {
namespace {

// Sets the variables, and restores them at the end.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const char* name : {"ATTN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    set(values);
  }
  ~Environment() {
    for (const char* name : {"ATTN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
    set(before_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::string> before_;
};

std::string folder_with(const std::map<std::string, std::string>& values) {
  const Environment environment(values);
  return default_folder();
}

TEST(CacheFolder, IsTheFirstThatIsSet) {
  EXPECT_EQ(folder_with({{"ATTN_CACHE_DIR", "/a"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}),
            "/a");
  EXPECT_EQ(folder_with({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/attnc");
  EXPECT_EQ(folder_with({{"HOME", "/h"}}), "/h/.cache/attnc");
  EXPECT_EQ(folder_with({}), "");
}

TEST(CacheFolder, EmptyAndRelativeOnesAreNotTaken) {
  EXPECT_EQ(folder_with({{"ATTN_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}}),
            "/h/.cache/attnc");
  EXPECT_EQ(folder_with({{"ATTN_CACHE_DIR", "relative"}}), "relative");
}

}  // namespace
}  // namespace attn::cache
