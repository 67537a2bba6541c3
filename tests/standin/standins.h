// Access to the stand-ins for cuDNN, the CUDA driver and NCCL in this process, for tests.
//
// They are loaded by path, before anything else loads a driver, so that libcuda.so.1 resolves to
// the stand-in; cuDNN is found in folder(). Another process finds both in folder() with
// $ATTN_CUDNN_DIR and $LD_LIBRARY_PATH.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/standin/standin.h"

namespace attn::standin {

std::string folder();
const StandinCudnn& cudnn();
const StandinCuda& cuda();
const StandinNccl& nccl();

// The n-th call of `function` (null: any whose result must be checked) fails.
StandinRule fail_nth(const char* function, long nth, int status, const char* words = nullptr);
// The n-th call of a function waits for release().
StandinRule block_nth(const char* function, long nth);

std::string violations();  // of both libraries
std::string log_of(const StandinControl& control);

// Numbers of live objects in both libraries.
struct Live {
  std::int64_t descriptors = 0, handles = 0;
  std::int64_t contexts = 0, memory = 0, bytes = 0, streams = 0, events = 0, modules = 0;
  std::int64_t graphs = 0;  // captured and instantiated
  bool operator==(const Live&) const = default;
};
Live live();
void PrintTo(const Live& live, std::ostream* out);

// Resets the stand-ins before each test. After it, checks that no objects are alive and no API
// contract was violated.
class StandinTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

}  // namespace attn::standin
