// Line breaking for DSL text.
#pragma once

#include <string>
#include <string_view>

namespace attn::ast {

// Breaks `text`, which begins at column `indent`, into lines of at most kColumns - 1 (print.h).
// Breaks are after commas and before operators, preferably the outermost and least tightly binding
// ones. Continuation lines begin at `indent`. A part that cannot be broken may be longer.
std::string wrap(std::string_view text, std::size_t indent);

}  // namespace attn::ast
