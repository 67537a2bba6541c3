// What runs a program: the part of an explanation that says how it was compiled.
#pragma once

#include <string>

#include "tools/explanation.h"

namespace attn::tools {

// Sections, each after an empty line and with `before` and its name as heading: the engine, the
// strategies that were considered, and the steps. Without a plan the first says why there is none.
std::string engine_sections(const Explanation& explanation, const ExplainedProgram& program,
                            const std::string& before);
Json engine_json(const Explanation& explanation, const ExplainedProgram& program);

}  // namespace attn::tools
