// Where a long line of the DSL is broken.
#pragma once

#include <string>
#include <string_view>

namespace attn::ast {

// `text`, the rest of a line from column `indent` on, in lines of at most kColumns (print.h), with
// room for one more character: broken behind commas and before operators, the outermost and loosest
// first. Further lines begin at `indent`. A part without such a place stays as long as it is.
std::string wrap(std::string_view text, std::size_t indent);

}  // namespace attn::ast
