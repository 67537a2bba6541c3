// The files of compiler/device/attn, each alone: with the host's compiler and with NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/base/hash.h"
#include "tests/support/host_kernels.h"

namespace attn::codegen {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kFolder = ATTN_SOURCE_DIR "/compiler/device";

class Kernels : public ::testing::TestWithParam<std::string> {};
class HostKernels : public Kernels {};

TEST_P(HostKernels, CompileOnTheHost) {
  const std::string command = fmt::format(
      "{0} -std=c++20 -fsyntax-only -w -x c++ -I{1} -I{2} -include "
      "{1}/tests/unit/compiler/programs/warps_on_host.h -Dasm=ATTN_ASM_ON_HOST {2}/attn/{3}",
      ATTN_CXX, ATTN_SOURCE_DIR, kFolder, GetParam());
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

// Each includes what it needs. KernelClasses compiles them together, for other GPUs too.
TEST_P(Kernels, CompileForGpus) {
  const std::string source =
      include_text("values.cuh") + include_text(GetParam()) + kernel_text("attn_derive", {}, "");
  const Result<std::string> image = nvrtc::compile_kernel(source, 90, "");
  EXPECT_TRUE(image.ok()) << image.error().to_text();
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const support::EmbeddedFile& file : sources()) all.emplace_back(file.name);
  return all;
}

std::vector<std::string> names_for_host() {
  std::vector<std::string> all = names();
  std::erase_if(all, [](const std::string& name) { return !attn::testing::is_for_host(name); });
  return all;
}

std::string stem(const ::testing::TestParamInfo<std::string>& name) {
  return name.param.substr(0, name.param.find('.'));
}

INSTANTIATE_TEST_SUITE_P(Files, Kernels, ::testing::ValuesIn(names()), stem);
INSTANTIATE_TEST_SUITE_P(Files, HostKernels, ::testing::ValuesIn(names_for_host()), stem);

// Every member of the class templates, which are compiled only where they are used.
TEST(KernelClasses, CompileForGpus) {
  std::string source;
  for (const std::string& name : names()) source += include_text(name);
  for (const char* type :
       {"Softmax<kernels::F16>", "Softmax<kernels::BF16>", "SoftmaxGradients<kernels::F16>",
        "SoftmaxGradients<kernels::BF16>", "RowDeltas<kernels::F16>", "RowDeltas<kernels::BF16>",
        "Sum<kernels::F16, 8>", "Sum<kernels::BF16, 1>", "Segments<int>", "Segments<long long>"}) {
    source += fmt::format("template struct kernels::{};\n", type);
  }
  for (const std::int64_t sm : {80, 90, 100}) {
    const Result<std::string> image = nvrtc::compile_kernel(source, sm, "");
    EXPECT_TRUE(image.ok()) << image.error().to_text();
  }
}

TEST(KernelText, IncludesNameTheTextThatTheyInclude) {
  EXPECT_THAT(include_text("rows.cuh"),
              MatchesRegex("#include \"attn/rows.cuh\"  // [0-9a-f]{16}\n"));
  EXPECT_NE(include_text("rows.cuh").substr(24), include_text("values.cuh").substr(26));
}

// Other options make another kernel, and so another plan.
TEST(KernelText, IncludesNameTheOptions) {
  for (const KernelKind kind : {KernelKind::element_wise, KernelKind::general}) {
    for (const char* option : options_of(kind)) EXPECT_THAT(options_text(), HasSubstr(option));
  }
  const std::string hash =
      hash128(options_text() + std::string(support::text_of(sources(), "values.cuh"))).to_hex();
  EXPECT_THAT(include_text("values.cuh"), HasSubstr("// " + hash.substr(0, 16)));
}

TEST(KernelText, OneOutput) {
  KernelText kernel;
  EXPECT_TRUE(kernel.empty());
  const std::string in = kernel.read("x", DType::f32);
  EXPECT_EQ(kernel.read("x", DType::f32), in);
  kernel.make("y", DType::bf16, 6, "x", "out[i] = " + element_text(DType::bf16, in + "[i]") + ";");
  const plan::DeriveStep step = std::move(kernel).finish(true);
  EXPECT_TRUE(step.once);
  EXPECT_EQ(step.outputs, std::vector<std::string>{"y"});
  EXPECT_EQ(
      step.source,
      include_text("values.cuh") +
          "extern \"C\" __global__ void attn_derive(unsigned short* out, const float* in0) {\n"
          "  long long i = attn_thread();\n  if (i >= 6) return;\n"
          "  out[i] = kernels::BF16::narrow((float)(in0[i]));\n}\n");
}

TEST(KernelText, OutputsShareTheThreads) {
  KernelText kernel;
  kernel.include("rows.cuh");
  kernel.make("y", DType::i64, 6, "zeros", "out[i] = 0;");
  kernel.make("z", DType::i32, 4, "ones", "out[i] = 1;");
  EXPECT_EQ(std::move(kernel).finish(false).source,
            include_text("rows.cuh") +
                "extern \"C\" __global__ void attn_derive(long long* out, int* out1) {\n"
                "  long long i = attn_thread();\n"
                "  if (i < 6) {\n    out[i] = 0;\n    return;\n  }\n  i -= 6;\n"
                "  if (i < 4) {\n    auto* out = out1;\n    out[i] = 1;\n    return;\n  }\n"
                "  i -= 4;\n}\n");
}

TEST(KernelText, AnObjectHasTheFieldsThatAreGiven) {
  EXPECT_EQ(object_text("EmptyRows", "rows", {{"S", 8}, {"starts", ""}, {"out", "o"}}),
            "  kernels::EmptyRows rows; rows.S = 8; rows.out = o;\n");
}

}  // namespace
}  // namespace attn::codegen
