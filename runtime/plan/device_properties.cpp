#include "runtime/plan/device_properties.h"

#include <algorithm>

namespace attn::plan {

DeviceProperties::DeviceProperties(std::string_view json)
    : json_(nlohmann::ordered_json::parse(json, nullptr, false)) {
  if (!json_.is_object()) json_ = nlohmann::ordered_json::object();
}

double DeviceProperties::number(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end() || !found->is_number()) return 0;
  return std::max(found->get<double>(), 0.0);
}

std::string DeviceProperties::text(const char* name) const {
  const auto found = json_.find(name);
  return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t DeviceProperties::sm() const {
  return static_cast<std::int64_t>(number("deviceVer")) / 10;
}

std::string DeviceProperties::indented() const { return json_.dump(2) + "\n"; }

}  // namespace attn::plan
