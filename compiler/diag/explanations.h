// What `attnc explain-code` says of each code. Declared in explanations.def, beside
// diagnostics.def.
#pragma once

#include <string>
#include <string_view>

#include "compiler/diag/diagnostics.h"

namespace attn::diag {

struct Explanation {
  std::string_view text;
  std::string_view wrong;  // a spec that gets this code; JSON when it begins with `{`
  std::string_view right;  // what was meant: a spec without any diagnostic
};

const Explanation& explanation_of(Code code);

// An example as the compiler reads it: `[[101 x (]]` stands for 101 times what follows the x and a
// space.
std::string expand_example(std::string_view example);

}  // namespace attn::diag
