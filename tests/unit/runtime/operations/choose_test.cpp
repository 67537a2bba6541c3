// Which of libattn's images a GPU gets.
#include <gtest/gtest.h>

#include "runtime/operations/images.h"

namespace attn::operations {
namespace {

std::string chosen(std::int64_t sm) {
  const auto image = choose(images(), sm);
  if (!image.ok()) return std::string(image.error().message);
  return (image->is_ptx ? "compute_" : "sm_") + std::to_string(image->sm);
}

TEST(OperationsImages, AreChosenByTheComputeCapability) {
  for (const std::int64_t sm : {80, 86, 87, 89}) EXPECT_EQ(chosen(sm), "sm_80") << sm;
  EXPECT_EQ(chosen(90), "sm_90");
  for (const std::int64_t sm : {100, 103}) EXPECT_EQ(chosen(sm), "sm_100") << sm;
  for (const std::int64_t sm : {120, 121}) EXPECT_EQ(chosen(sm), "sm_120") << sm;
}

TEST(OperationsImages, OfGpusWithoutACubinArePtx) {
  for (const std::int64_t sm : {110, 130}) EXPECT_EQ(chosen(sm), "compute_80") << sm;
  EXPECT_EQ(chosen(75),
            "this GPU has compute capability 7.5, but libattn's own kernels need 8.0 or newer");
}

TEST(OperationsImages, AreWhatTheySay) {
  for (const Image& image : images()) {
    if (image.is_ptx)
      EXPECT_NE(image.bytes.find(".entry attn_append_rows"), image.bytes.npos);
    else
      EXPECT_TRUE(
          image.bytes.starts_with("\x7f"
                                  "ELF"))
          << image.sm;
  }
}

}  // namespace
}  // namespace attn::operations
