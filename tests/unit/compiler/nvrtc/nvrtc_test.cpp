#include "compiler/nvrtc/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "compiler/codegen/emit.h"
#include "tests/support/own_answers.h"
#include "tests/unit/compiler/codegen/random_cases.h"

namespace attn::nvrtc {
namespace {

using ::testing::HasSubstr;

constexpr const char* kKernel = "extern \"C\" __global__ void attn_derive(int* o) { *o = 1; }\n";

TEST(Nvrtc, CompilesForEveryTargetWithoutAGpu) {
  for (const std::int64_t sm : {80, 89, 90, 100, 120}) {
    const Result<std::string> image = compile_kernel(kKernel, sm, "");
    ASSERT_TRUE(image.ok()) << image.error().to_text();
    EXPECT_EQ(image->substr(0, 4),
              "\x7f"
              "ELF")
        << sm;
    EXPECT_THAT(*image, HasSubstr("attn_derive"));
  }
}

TEST(Nvrtc, TheSameSourceGivesTheSameImage) {
  const attn::testing::OwnAnswers none("");
  EXPECT_EQ(*compile_kernel(kKernel, 90, ""), *compile_kernel(kKernel, 90, ""));
}

// Each file has the answer to one question. One that others may write to is not read.
TEST(Nvrtc, AnswersAreKeptAndLookedUp) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("attn_nvrtc_answers_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  const attn::testing::OwnAnswers own(folder.string());
  const auto files = [&folder] {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  const auto compile = [](std::int64_t sm, std::string* log) {
    return compile_kernel(kKernel, sm, "", KernelKind::general, log);
  };
  std::string log, log_again;
  const std::string image = compile(90, &log).value();
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(compile(90, &log_again).value(), image);
  EXPECT_EQ(log_again, log);
  EXPECT_NE(log, "");
  EXPECT_EQ(files(), 1);
  EXPECT_NE(compile(80, nullptr).value(), image);
  EXPECT_EQ(compile_kernel(kKernel, 90, "").value().substr(0, 4), image.substr(0, 4));
  EXPECT_EQ(files(), 3);
  EXPECT_FALSE(compile_kernel("int x = y;\n", 90, "").ok());
  EXPECT_EQ(files(), 3);
  for (const auto& file : fs::directory_iterator(folder))
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(compile(90, nullptr).error().code, ErrorCode::io);
  fs::remove_all(folder);
}

TEST(Nvrtc, SaysWhatItRefuses) {
  const Result<std::string> wrong = compile_kernel("int x = y;\n", 90, "");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::internal);
  ASSERT_EQ(wrong.error().notes.size(), 1U);
  EXPECT_THAT(wrong.error().notes[0], HasSubstr("identifier \"y\" is undefined"));
  const Result<std::string> old = compile_kernel(kKernel, 10, "");
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.error().code, ErrorCode::cuda);
  EXPECT_THAT(old.error().message, HasSubstr("sm_10"));
}

TEST(Nvrtc, AcceptsWhatIsEmitted) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const codegen::testing::Case what = codegen::testing::random_case(seed);
    const std::string source = codegen::emit_step(what.attention, what.outputs).source;
    const Result<std::string> image = compile_kernel(source, 90, "");
    ASSERT_TRUE(image.ok()) << image.error().to_text() << source;
  }
}

}  // namespace
}  // namespace attn::nvrtc
