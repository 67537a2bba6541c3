#include "runtime/cudnn/errors.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace attn::cudnn {
namespace {

constexpr std::string_view kStatusPrefix = "CUDNN_STATUS_";
constexpr std::size_t kReasonBytes = 4096;

// cuDNN's text without the line ends it puts around and inside.
std::string last_reason(const Api& api) {
  std::array<char, kReasonBytes> buffer{};
  api.cudnnGetLastErrorString(buffer.data(), buffer.size());
  std::string reason(buffer.data());
  for (char& c : reason) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  const std::size_t first = reason.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return reason.substr(first, reason.find_last_not_of(' ') - first + 1);
}

}  // namespace

std::string status_name(const Api& api, cudnnStatus_t status) {
  std::string_view name = api.cudnnGetErrorString(status);
  if (name.starts_with(kStatusPrefix)) name.remove_prefix(kStatusPrefix.size());
  return std::string(name);
}

bool is_refusal(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE: return false;
    default: return status >= 3000 && status < 4000;
  }
}

Error call_error(const Api& api, cudnnStatus_t status, const std::string& call) {
  const std::string reason = last_reason(api);
  Error error;
  error.code = is_refusal(status) ? ErrorCode::unsupported : ErrorCode::cudnn;
  error.message = "cuDNN: " + call + ": " + status_name(api, status);
  if (!reason.empty()) error.notes.push_back(reason);
  const nlohmann::ordered_json payload = {
      {"call", call}, {"status", status_name(api, status)}, {"reason", reason}};
  error.payload = payload.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return error;
}

Error with_place(Error error, const std::string& stage, int node, const std::string& where) {
  nlohmann::ordered_json payload = {{"stage", stage}, {"node", node}};
  if (!error.payload.empty()) payload.update(nlohmann::ordered_json::parse(error.payload));
  error.payload = payload.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  error.message = where + ": " + error.message;
  return error;
}

}  // namespace attn::cudnn
