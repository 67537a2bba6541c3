// A program as a JSON value, for the documents that hold one.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/graph/json_value.h"
#include "runtime/plan/program.h"

namespace attn::plan {

nlohmann::ordered_json json_of(const Program& program);

// What is wrong is recorded in the value's Failure.
Program read_program(const json::Value& value);

}  // namespace attn::plan
