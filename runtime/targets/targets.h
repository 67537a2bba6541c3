// The GPUs known by name, and those described by a file. Needs neither CUDA nor cuDNN.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::targets {

// In the order of targets.def: "h200", "h100", "a100", "l40s", "b200", "rtx5090".
std::vector<std::string> target_names();

// A further name of a target (aliases.def): another GPU of its compute capability, or the
// capability itself, as "sm_90". `differs` says what is different on that GPU; empty for a
// capability.
struct Alias {
  std::string_view name;
  std::string_view target;
  std::string_view differs;
};
std::span<const Alias> aliases();

// Where the numbers of a named target come from, in one line; empty for an unknown name. cuDNN 9.28
// refuses to load a plan whose device properties differ from the real card's, so those that were
// not read off a card may need `attnc target dump` on one and a second compile.
std::string_view provenance(std::string_view name);

// Whether its properties are those of a data sheet (a named target not read off a card).
bool is_from_data_sheet(const plan::Target& target);

// A named target, or with a value that ends in ".json" the one in that file (its stem becomes the
// name). Names and aliases may be written in any case; an alias gives the target that it stands
// for. Errors: invalid_argument (unknown name, with the known ones; a file that is no JSON object
// or lacks a property, which is named), io.
Result<plan::Target> find_target(const std::string& name_or_json_path);

// Checks `device_json` (DEVICEPROP JSON) and takes the SM from its deviceVer (900 -> 90). The JSON
// is kept as it is.
Result<plan::Target> make_target(const std::string& name, const std::string& device_json);

}  // namespace attn::targets
