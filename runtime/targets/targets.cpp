#include "runtime/targets/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/regular_file.h"
#include "runtime/graph/json_value.h"
#include "runtime/plan/device_properties.h"

// The bytes of <name>.json, between attn_target_<name>_begin and attn_target_<name>_end.
#define ATTN_TARGET(name, from_card, provenance)      \
  asm(".pushsection .rodata\n"                        \
      ".global attn_target_" #name                    \
      "_begin\n"                                      \
      ".hidden attn_target_" #name                    \
      "_begin\n"                                      \
      ".global attn_target_" #name                    \
      "_end\n"                                        \
      ".hidden attn_target_" #name                    \
      "_end\n"                                        \
      "attn_target_" #name                            \
      "_begin:\n"                                     \
      ".incbin \"" ATTN_TARGETS_FOLDER "/" #name      \
      ".json\"\n"                                     \
      "attn_target_" #name                            \
      "_end:\n"                                       \
      ".popsection\n");                               \
  extern "C" const char attn_target_##name##_begin[]; \
  extern "C" const char attn_target_##name##_end[];
#include "runtime/targets/targets.def"
#undef ATTN_TARGET

namespace attn::targets {
namespace {

namespace fs = std::filesystem;

struct Entry {
  const char* name;
  bool from_card;
  std::string_view provenance;
  std::string_view json;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
#define ATTN_TARGET(name, from_card, provenance) \
  {#name, from_card, provenance,                 \
   std::string_view(attn_target_##name##_begin, attn_target_##name##_end)},
#include "runtime/targets/targets.def"
#undef ATTN_TARGET
  };
  return kEntries;
}

constexpr std::size_t kMostProperties = 1024;
constexpr const char* kProperties[] = {
#define ATTN_DEVICE_PROPERTY(name) #name,
#include "runtime/targets/properties.def"
#undef ATTN_DEVICE_PROPERTY
};

constexpr Alias kAliases[] = {
#define ATTN_TARGET_ALIAS(name, target, differs) {#name, #target, differs},
#include "runtime/targets/aliases.def"
#undef ATTN_TARGET_ALIAS
};

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string upper_case(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// "9.0" as "sm_90"; any other text as it is.
std::string capability_name(const std::string& text) {
  const std::size_t dot = text.find('.');
  if (dot == 0 || dot + 2 != text.size()) return text;
  if (text.find_first_not_of("0123456789.") != std::string::npos) return text;
  return "sm_" + text.substr(0, dot) + text.substr(dot + 1);
}

// Resolves aliases and upper case to the target's name.
std::string canonical_name(const std::string& name) {
  const std::string wanted = capability_name(lower_case(name));
  const auto* found = std::ranges::find(kAliases, wanted, &Alias::name);
  return found == std::end(kAliases) ? wanted : std::string(found->target);
}

std::vector<std::string_view> alias_names() {
  std::vector<std::string_view> names;
  for (const Alias& alias : kAliases) names.push_back(alias.name);
  return names;
}

Result<plan::Target> refused(const std::string& message) {
  return Result<plan::Target>(ErrorCode::invalid_argument, message);
}

Result<plan::Target> read_target(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 20;  // the longest has 2 kB
  ATTN_ASSIGN(const std::string text, read_regular_file(path, kMost));
  Result<plan::Target> target = make_target(fs::path(path).stem().string(), text);
  if (target.ok()) return target;
  Error error = target.error();
  error.message = path + ": " + error.message;
  return error;
}

}  // namespace

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  return names;
}

std::span<const Alias> aliases() { return kAliases; }

std::vector<std::string> gpus_of(std::int64_t sm) {
  std::vector<std::string> gpus;
  for (const Entry& entry : entries()) {
    const auto target = make_target(entry.name, std::string(entry.json));
    if (target.ok() && target->sm == sm) gpus.push_back(upper_case(entry.name));
  }
  for (const Alias& alias : kAliases) {
    const auto target = find_target(std::string(alias.target));
    if (!alias.differs.empty() && target.ok() && target->sm == sm) {
      gpus.push_back(upper_case(std::string(alias.name)));
    }
  }
  return gpus;
}

std::string_view provenance(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (entry.name == name) return entry.provenance;
  }
  return "";
}

bool is_from_data_sheet(const plan::Target& target) {
  return std::ranges::any_of(entries(), [&target](const Entry& entry) {
    return !entry.from_card && entry.json == target.device_json;
  });
}

Result<plan::Target> find_target(const std::string& name_or_json_path) {
  if (name_or_json_path.ends_with(".json")) return read_target(name_or_json_path);
  const std::string name = canonical_name(name_or_json_path);
  for (const Entry& entry : entries()) {
    if (entry.name == name) return make_target(entry.name, std::string(entry.json));
  }
  Error error{
      ErrorCode::invalid_argument,
      fmt::format("unknown target \"{}\"; targets are {}, aliases are {}, or give a .json file",
                  name_or_json_path, fmt::join(target_names(), ", "),
                  fmt::join(alias_names(), ", "))};
  if (std::string hint = hint_for(name_or_json_path); !hint.empty())
    error.notes = {std::move(hint)};
  return error;
}

Result<plan::Target> make_target(const std::string& name, const std::string& device_json) {
  const Result<nlohmann::json> parsed = json::parse(device_json, {.members = kMostProperties});
  if (!parsed.ok()) return refused("the device properties: " + parsed.error().message);
  if (!parsed->is_object()) return refused("the device properties are not a JSON object");
  for (const char* property : kProperties) {
    if (!parsed->contains(property)) {
      return refused(fmt::format("the device properties lack \"{}\"", property));
    }
  }
  for (const char* property :
       {"deviceVer", "multiProcessorCount", "smClockRateKHz", "memClockRateKHz"}) {
    if (!parsed->at(property).is_number_integer())
      return refused(fmt::format("the device property \"{}\" is not an integer", property));
  }
  if (!parsed->at("deviceName").is_string())
    return refused("the device property \"deviceName\" is not a text");
  return plan::Target{name, plan::DeviceProperties(device_json).sm(), device_json};
}

}  // namespace attn::targets
