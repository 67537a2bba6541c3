// Converts failed cuDNN calls to Errors.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cudnn/api.h"

namespace attn::cudnn {

// "NOT_SUPPORTED_GRAPH_PATTERN" for CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN.
std::string status_name(const Api& api, cudnnStatus_t status);

// Whether a status of this name means that cuDNN does not support the request: the NOT_SUPPORTED
// ones, except those for a missing or unsuitable installation (driver, CUDA runtime, NVRTC,
// sublibrary).
bool is_refusal(std::string_view status_name);

// Call directly after the failing call, since it takes cuDNN's last error text of this thread.
// `call` names the call ("finalize TENSOR"). Code: unsupported if is_refusal, else cudnn. The
// payload is {"call": .., "status": .., "reason": ..}; the reason, if any, is also the only note.
Error call_error(const Api& api, cudnnStatus_t status, const std::string& call);

// A field of the payload of call_error(); empty for other errors.
std::string payload_field(const Error& error, const char* name);

// `error` with "stage" and "node" added to its payload, and `where` prepended to its message.
Error with_place(Error error, const std::string& stage, int node, const std::string& where);

}  // namespace attn::cudnn
