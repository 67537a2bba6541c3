#include "compiler/nvrtc/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/nvrtc/nvrtc.h"

namespace attn::nvrtc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kLog =
    "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to ill formed pipeline stage in the function 'attn_forward'\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'attn_lists' for 'sm_90a'\n"
    "ptxas info    : Function properties for attn_lists\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 24 registers, used 0 barriers\n"
    "ptxas info    : Compiling entry function 'attn_forward' for 'sm_90a'\n"
    "ptxas info    : Function properties for attn_forward\n"
    "ptxas         .     72 bytes stack frame, 92 bytes spill stores, 80 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 16 barriers, 72 bytes cumulative stack size\n";

// As many values as `count` live at once, in a block of threads that has 64 registers each.
std::string of_live_values(int count) {
  return "extern \"C\" __global__ void __launch_bounds__(1024, 1) live(volatile float* x) {\n"
         "  float a[" +
         std::to_string(count) +
         "];\n"
         "  const int n = sizeof(a) / sizeof(float);\n"
         "#pragma unroll\n"
         "  for (int i = 0; i < n; ++i) a[i] = x[i];\n"
         "#pragma unroll\n"
         "  for (int i = 0; i < n; ++i) x[i] = a[n - 1 - i];\n"
         "}\n";
}

// A product of a warp group whose sums are changed, if `touched`, before it has ended.
std::string of_product(bool touched) {
  const std::string touch = touched ? "  s[0] += x[threadIdx.x];\n" : "";
  return "extern \"C\" __global__ void __launch_bounds__(128, 1)\n"
         "product(float* x, unsigned long long a, unsigned long long b) {\n"
         "  float s[4];\n"
         "  for (int i = 0; i < 4; ++i) s[i] = x[i];\n"
         "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
         "  for (int i = 0; i < 2; ++i) {\n"
         "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
         "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\"\n"
         "        : \"+f\"(s[0]), \"+f\"(s[1]), \"+f\"(s[2]), \"+f\"(s[3]) : \"l\"(a), "
         "\"l\"(b));\n" +
         touch +
         "  }\n"
         "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
         "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
         "  for (int i = 0; i < 4; ++i) x[i] = s[i];\n"
         "}\n";
}

Assembly assembled(const std::string& source) {
  std::string log;
  const auto image = compile_kernel(source, 90, "", KernelKind::general, &log);
  EXPECT_TRUE(image.ok()) << image.error().to_text();
  return read_assembly(log);
}

TEST(Assembly, IsReadFromTheLog) {
  const Assembly assembly = read_assembly(kLog);
  ASSERT_EQ(assembly.kernels.size(), 2U);
  EXPECT_EQ(assembly.kernels[0].name, "attn_lists");
  EXPECT_EQ(assembly.kernels[0].spilled_bytes, 0);
  EXPECT_EQ(assembly.kernels[1].name, "attn_forward");
  EXPECT_EQ(assembly.kernels[1].spilled_bytes, 92);
  ASSERT_EQ(assembly.losses.size(), 1U);
  EXPECT_THAT(assembly.losses[0], HasSubstr("ill formed pipeline stage"));
  EXPECT_TRUE(read_assembly("").kernels.empty());
  EXPECT_TRUE(read_assembly("92 bytes spill stores\n bytes spill stores").kernels.empty());
}

TEST(Assembly, OfALogIsChecked) {
  Assembly assembly = read_assembly(kLog);
  EXPECT_THAT(check_assembly(assembly, {.spilled_bytes = 1000}).error().message,
              HasSubstr("serialized"));
  assembly.losses.clear();
  EXPECT_TRUE(check_assembly(assembly, {.spilled_bytes = 92}).ok());
  EXPECT_FALSE(check_assembly(assembly, {.spilled_bytes = 91}).ok());
  EXPECT_TRUE(check_assembly(assembly, {.may_spill = "attn_forward"}).ok());
  EXPECT_FALSE(check_assembly(assembly, {.may_spill = "attn_lists"}).ok());
}

TEST(Assembly, OfKernelsThatSpillIsRefused) {
  const Assembly few = assembled(of_live_values(20)), many = assembled(of_live_values(200));
  ASSERT_EQ(few.kernels.size(), 1U);
  EXPECT_TRUE(check_assembly(few, {}).ok());
  const Status refused = check_assembly(many, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("kernel live"), HasSubstr("spilled")));
}

TEST(Assembly, OfProductsThatWaitForEachOtherIsRefused) {
  EXPECT_TRUE(check_assembly(assembled(of_product(false)), {}).ok());
  const Status refused = check_assembly(assembled(of_product(true)), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("serialized"));
}

}  // namespace
}  // namespace attn::nvrtc
