// The properties of a GPU as cuDNN gives and takes them: JSON (Target::device_json), whose keys
// runtime/targets/properties.def lists.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attn::plan {

class DeviceProperties {
 public:
  // A text that is no JSON object has no properties.
  explicit DeviceProperties(std::string_view json);

  bool empty() const { return json_.empty(); }
  // 0 for a property that is absent or is no positive number.
  double number(const char* name) const;
  // Empty for one that is absent or is no text.
  std::string text(const char* name) const;
  std::int64_t sm() const;       // compute capability * 10: 90 for Hopper
  std::string indented() const;  // the JSON, for people

 private:
  nlohmann::ordered_json json_;
};

}  // namespace attn::plan
