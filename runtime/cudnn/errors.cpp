#include "runtime/cudnn/errors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/cudnn/last_words.h"

namespace attn::cudnn {
namespace {

using Json = nlohmann::ordered_json;

// Statuses about the installation, not the graph.
constexpr std::string_view kInstallation[] = {
    "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
    "NOT_SUPPORTED_INCOMPATIBLE_CUDART",
    "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
};

// cuDNN's text may not be UTF-8; invalid bytes are replaced, since this is for people.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string status_name(const Api& api, cudnnStatus_t status) {
  constexpr std::string_view kPrefix = "CUDNN_STATUS_";
  std::string_view name = api.cudnnGetErrorString(status);
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return std::string(name);
}

bool is_refusal(std::string_view status_name) {
  return status_name.starts_with("NOT_SUPPORTED") &&
         std::ranges::find(kInstallation, status_name) == std::end(kInstallation);
}

Error call_error(const Api& api, cudnnStatus_t status, const std::string& call) {
  const std::vector<LastWords> words = parse_last_words(take_last_text(api));
  std::string name = status_name(api, status);
  const std::string reason = words.empty() ? "" : words.front().reason;
  // The deepest reason has the more specific status.
  if (!words.empty() && !words.front().status.empty()) name = words.front().status;
  Error error;
  error.code = is_refusal(name) ? ErrorCode::unsupported : ErrorCode::cudnn;
  error.message = "cuDNN: " + call + ": " + name;
  if (!reason.empty()) error.notes.push_back(reason);
  error.payload = dump({{"call", call}, {"status", name}, {"reason", reason}});
  return error;
}

std::string payload_field(const Error& error, const char* name) {
  if (error.payload.empty()) return "";
  return Json::parse(error.payload).value(name, "");
}

Error with_place(Error error, const std::string& stage, int node, const std::string& where) {
  Json payload = {{"stage", stage}, {"node", node}};
  if (!error.payload.empty()) payload.update(Json::parse(error.payload));
  error.payload = dump(payload);
  error.message = where + ": " + error.message;
  return error;
}

}  // namespace attn::cudnn
