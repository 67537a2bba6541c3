// Programs as text, for people and golden files: tensors, params, then each step's graph.
#pragma once

#include <string>

#include "runtime/plan/program.h"

namespace attn::plan {

std::string to_text(const Program& program);

}  // namespace attn::plan
