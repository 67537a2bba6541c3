// The stand-ins for cuDNN and the CUDA driver, in this process, for tests.
//
// They are loaded here by their paths, before anything else asks for a driver; whoever asks for
// libcuda.so.1 then gets ours, and cuDNN is found in folder(). Another process finds both there:
// with $ATTN_CUDNN_DIR and $LD_LIBRARY_PATH.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/standin/standin.h"

namespace attn::standin {

std::string folder();
const StandinCudnn& cudnn();
const StandinCuda& cuda();

// Of one library: a call of `function` (null: any that must be checked) fails.
StandinRule fail_nth(const char* function, long nth, int status, const char* words = nullptr);
// The n-th call of a function waits for release().
StandinRule block_nth(const char* function, long nth);

std::string violations();  // of both
std::string log_of(const StandinControl& control);

// What is alive, of both; "descriptors 3, handles 1, .." for people.
struct Live {
  std::int64_t descriptors = 0, handles = 0;
  std::int64_t contexts = 0, memory = 0, bytes = 0, streams = 0, events = 0, modules = 0;
  std::int64_t graphs = 0;  // captured and instantiated ones
  bool operator==(const Live&) const = default;
};
Live live();
void PrintTo(const Live& live, std::ostream* out);

// Starts each test with stand-ins that know of nothing, and ends it with the proof that nothing is
// left and no contract was breached.
class StandinTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

}  // namespace attn::standin
