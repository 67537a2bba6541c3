// A division as JSON: the section of plan files that says what ranks do (docs/plan-format.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/ranks/program.h"

namespace attn::ranks {

// JSON without exchanges, which follow from the rest (exchanges.h).
std::string to_json(const Division& division);
nlohmann::ordered_json json_of(const Division& division);

// Checks everything that a runtime relies on: sizes, whose products do not overflow; tensors with
// the names, roles and dims that they must have; that each row and key is at home on one rank;
// parts within the sizes, in the order of their stages. Fills the exchanges of `rank` or of all
// ranks, which for a thousand ranks can take gigabytes. Whether the file has the plans that parts
// name is not checked. Errors: plan_damaged, with the path in the JSON.
Result<Division> parse(std::string_view json, std::optional<int> rank = {});

}  // namespace attn::ranks
