// A failed cuDNN call as an Error.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cudnn/api.h"

namespace attn::cudnn {

// "NOT_SUPPORTED_GRAPH_PATTERN" for CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN.
std::string status_name(const Api& api, cudnnStatus_t status);

// Whether a status of this name says that cuDNN does not serve what was asked: the NOT_SUPPORTED
// ones, without those that mean that something of the installation is missing or unfit (driver,
// CUDA runtime, NVRTC, sublibrary).
bool is_refusal(std::string_view status_name);

// Must be the first thing after the failing call: takes cuDNN's last words of this thread. `call`
// says what was being done ("finalize TENSOR"). Code: unsupported for a refusal, else cudnn. The
// payload is {"call": .., "status": .., "reason": ..}; the reason, when there is one, is also the
// only note.
Error call_error(const Api& api, cudnnStatus_t status, const std::string& call);

// A field that call_error() put into the payload; empty for errors of another origin.
std::string payload_field(const Error& error, const char* name);

// `error` with "stage" and "node" added to its payload and `where` put before its message.
Error with_place(Error error, const std::string& stage, int node, const std::string& where);

}  // namespace attn::cudnn
