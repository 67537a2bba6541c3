// Main program of the GPU tests. Started as "PROGRAM worker" it is a compile worker, which the
// tests use to compile plans.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/worker/worker.h"
#include "tests/gpu/gpu_test.h"

namespace {

class SkipSummary : public ::testing::Environment {
 public:
  void TearDown() override {
    const int skipped = ::testing::UnitTest::GetInstance()->skipped_test_count();
    if (skipped == 0) return;
    const std::string why = attn::testing::no_device_because();
    std::printf("SKIPPED: %d GPU tests did not run%s%s\n", skipped, why.empty() ? "" : ": ",
                why.c_str());
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "worker")
    return attn::worker::serve(0, 1, attn::nvrtc::compile_for_client);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new SkipSummary);
  return RUN_ALL_TESTS();
}
