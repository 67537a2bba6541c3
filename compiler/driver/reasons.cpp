#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

}  // namespace

std::string reason_of(const Error& error) {
  const Json payload = Json::parse(error.payload, nullptr, false);
  if (payload.is_object() && payload.contains("configs")) {
    const std::string said = first_reason(payload["configs"]);
    if (!said.empty()) return translated(said);
  }
  if (error.notes.empty()) return error.message;
  return fmt::format("{}; {}", error.message, error.notes.front());
}

}  // namespace attn::driver
