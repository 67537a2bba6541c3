// Line breaking for DSL text.
#pragma once

#include <string>
#include <string_view>

namespace attn::ast {

// Breaks `text`, which begins at column `indent`, into lines of at most kColumns - 1 (print.h).
// Breaks are after commas and before operators, preferably the outermost and least tightly binding
// ones. Further lines begin at `indent`; within parentheses or brackets, behind the innermost that
// is open, unless little room is left there. A part that cannot be broken may be longer.
std::string wrap(std::string_view text, std::size_t indent);

}  // namespace attn::ast
