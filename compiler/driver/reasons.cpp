#include "compiler/driver/reasons.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/driver/support.h"

namespace attn::driver {
namespace {

using Json = nlohmann::json;

struct Reason {
  std::string_view part;
  std::string_view words;
};
constexpr Reason kReasons[] = {
#define ATTN_REASON(part, words) {part, words},
#include "compiler/driver/reasons.def"
#undef ATTN_REASON
};

std::string translated(const std::string& said) {
  for (const Reason& reason : kReasons) {
    if (said.find(reason.part) != std::string::npos) return std::string(reason.words);
  }
  // A sentence, and the condition that does not hold, in names of cuDNN's source.
  return said.substr(0, said.find(" at: "));
}

// cuDNN's reason against the first config that it offered, else against the first config.
std::string first_reason(const Json& configs) {
  const Json* first = nullptr;
  for (const Json& config : configs) {
    if (first == nullptr) first = &config;
    if (config.value("offered", true)) return config.value("reason", "");
  }
  return first ? first->value("reason", "") : "";
}

// Empty if the error has no answers of cuDNN's.
std::string reason_of_configs(const Error& error) {
  const Json payload = Json::parse(error.payload, nullptr, false);
  if (!payload.is_object() || !payload.contains("configs")) return "";
  const std::string said = first_reason(payload["configs"]);
  return said.empty() ? "" : translated(said);
}

}  // namespace

Error with_reason(Error error) {
  std::string reason = reason_of_configs(error);
  if (reason.empty()) return error;
  if (error.code == ErrorCode::unsupported) {
    error.message = std::move(reason);
  } else {
    error.notes.insert(error.notes.begin(), std::move(reason));
  }
  return error;
}

std::string reason_of(const Error& error) {
  if (std::string reason = reason_of_configs(error); !reason.empty()) return reason;
  if (error.notes.empty()) return error.message;
  return fmt::format("{}; {}", error.message, error.notes.front());
}

}  // namespace attn::driver
