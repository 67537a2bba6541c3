// GPU targets, by name or from a file. Needs neither CUDA nor cuDNN.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::targets {

// Names in the order of targets.def, such as "h200".
std::vector<std::string> target_names();

// An alias of a target (aliases.def): another GPU with its compute capability, or the capability
// itself, as "sm_90". `differs` says how that GPU differs; empty for a capability.
struct Alias {
  std::string_view name;
  std::string_view target;
  std::string_view differs;
};
std::span<const Alias> aliases();

// The GPUs of a compute capability among targets and aliases, as their makers write them: "H200",
// "H100", ..; 90 is capability 9.0. Empty for others.
std::vector<std::string> gpus_of(std::int64_t sm);

// Where the properties of a named target come from, in one line; empty for an unknown name. cuDNN
// 9.28 refuses to load a plan whose device properties differ from the real card's, so targets that
// were not read from a card may need `attnc target dump` on one and another compile.
std::string_view provenance(std::string_view name);

// Whether the properties come from a data sheet (a named target not read from a card).
bool is_from_data_sheet(const plan::Target& target);

// A named target, or the one in a file if the value ends in ".json" (its stem becomes the name).
// Names and aliases are case-insensitive; an alias gives its target, and so does a compute
// capability, as "sm_90" or "9.0". Errors: invalid_argument
// (unknown name, listing the known ones, with hint_for it as a note; a file that is not a JSON
// object or lacks a property, which is named), io.
Result<plan::Target> find_target(const std::string& name_or_json_path);

// What to write instead of a name that is no target: the target of the same GPU ("H100-SXM") or
// compute capability ("rtx4090"), "native", or why there is none; "" for an unknown name.
std::string hint_for(std::string_view name);

// Checks `device_json` (DEVICEPROP JSON) and derives the SM from its deviceVer (900 -> 90). Keeps
// the JSON unchanged.
Result<plan::Target> make_target(const std::string& name, const std::string& device_json);

}  // namespace attn::targets
