// The text of `attnc explain-code` for each code, declared in explanations.def.
#pragma once

#include <string>
#include <string_view>

#include "compiler/diag/diagnostics.h"

namespace attn::diag {

struct Explanation {
  std::string_view text;
  // A spec that gets this code, JSON when it begins with `{`: `[[101 x (]]` is 101 times `(`.
  std::string_view wrong;
  std::string_view right;  // the corrected spec, without diagnostics
};

const Explanation& explanation_of(Code code);

}  // namespace attn::diag
