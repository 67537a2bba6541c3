// The text of `attnc explain-code` for each code, declared in explanations.def.
#pragma once

#include <string>
#include <string_view>

#include "compiler/diag/diagnostics.h"

namespace attn::diag {

struct Explanation {
  std::string_view text;
  std::string_view wrong;  // a spec that gets this code; JSON when it begins with `{`
  std::string_view right;  // the corrected spec, without diagnostics
};

const Explanation& explanation_of(Code code);

// Expands an example for the compiler: `[[101 x (]]` becomes 101 times `(`.
std::string expand_example(std::string_view example);

}  // namespace attn::diag
