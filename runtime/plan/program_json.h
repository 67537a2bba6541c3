// Reads a program from JSON, as part of a larger document.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/graph/json_value.h"
#include "runtime/plan/program.h"

namespace attn::plan {

nlohmann::ordered_json json_of(const Program& program);

// Errors are recorded in the value's Failure.
Program read_program(const json::Value& value);

}  // namespace attn::plan
