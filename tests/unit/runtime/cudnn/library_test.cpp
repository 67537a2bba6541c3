#include "runtime/cudnn/library.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "runtime/cudnn/api.h"

namespace attn::cudnn {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Library, IsFoundAndComplete) {
  const auto library = Library::load();
  ASSERT_TRUE(library.ok()) << library.error().to_text();
  EXPECT_GE((*library)->version(), 91900);
  EXPECT_THAT((*library)->path(), HasSubstr("libcudnn.so.9"));
#define ATTN_CUDNN_FUNCTION(name) EXPECT_NE((*library)->api().name, nullptr);
#include "runtime/cudnn/functions.def"
#undef ATTN_CUDNN_FUNCTION
}

TEST(Library, IsFoundInItsFolder) {
  const auto anywhere = Library::load();
  ASSERT_TRUE(anywhere.ok());
  const auto folder = std::filesystem::path((*anywhere)->path()).parent_path();
  const auto there = Library::load(folder.string());
  ASSERT_TRUE(there.ok()) << there.error().to_text();
  EXPECT_EQ((*there)->version(), (*anywhere)->version());
}

TEST(Library, LooksInTheGivenFolderAlone) {
  const auto library = Library::load("/no/such/folder");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, ErrorCode::cudnn);
  EXPECT_EQ(library.error().message, "libcudnn.so.9 was not found");
  EXPECT_THAT(library.error().notes,
              ::testing::ElementsAre(HasSubstr("/no/such/folder: no libcudnn.so.9")));
}

TEST(Library, VersionText) {
  EXPECT_EQ(version_text(91900), "9.19.0");
  EXPECT_EQ(version_text(92801), "9.28.1");
}

}  // namespace
}  // namespace attn::cudnn
