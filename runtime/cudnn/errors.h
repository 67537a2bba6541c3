// A failed cuDNN call as an Error.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/cudnn/api.h"

namespace attn::cudnn {

// "NOT_SUPPORTED_GRAPH_PATTERN" for CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN.
std::string status_name(const Api& api, cudnnStatus_t status);

// Whether `status` says that cuDNN does not serve what was asked. The 3000s, without those that
// mean that something of the installation is missing (driver, CUDA runtime, NVRTC, sublibrary).
bool is_refusal(cudnnStatus_t status);

// Must be the first thing after the failing call: reads cuDNN's text of the last error of this
// thread. `call` says what was being done ("finalize TENSOR"). Code: unsupported for a refusal,
// else cudnn. The payload is {"call": .., "status": .., "reason": ..}; the reason, when there is
// one, is also the only note.
Error call_error(const Api& api, cudnnStatus_t status, const std::string& call);

// `error` with "stage" and "node" added to its payload and `where` put before its message.
Error with_place(Error error, const std::string& stage, int node, const std::string& where);

}  // namespace attn::cudnn
