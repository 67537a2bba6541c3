// A fake cuDNN as a table of entry points: counts calls, records arguments and fails on request.
// Only one at a time, since the C API has no context argument.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/cudnn/api.h"

namespace attn::cudnn::testing {

struct FakeConfig {
  std::int64_t engine = 0;
  cudnnStatus_t plan_status = CUDNN_STATUS_SUCCESS;
  std::string words;  // last error text if the plan fails
};

struct FakeOffer {
  std::vector<FakeConfig> configs;
  std::int64_t surplus = 0;  // announced beyond `configs`
  std::string words;         // last error text after the query
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
};

class FakeCudnn {
 public:
  FakeCudnn();
  ~FakeCudnn();
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;

  const Api& api() const { return api_; }

  // Behavior to simulate.
  std::map<cudnnBackendHeurMode_t, FakeOffer> offers;
  std::map<cudnnBackendDescriptorType_t, cudnnStatus_t> fail_finalize;
  std::string last_words;

  // Recorded calls.
  std::int64_t live = 0;
  std::int64_t most_live = 0;
  std::int64_t set_calls = 0;
  std::int64_t executions = 0;
  std::vector<std::int64_t> planned_engines;                    // of each plan, finalized or failed
  std::map<cudnnBackendAttributeName_t, std::string> last_set;  // bytes of the last value

 private:
  Api api_;
};

}  // namespace attn::cudnn::testing
