// The page of `attnc report`: what a view says, written by the templates in tools/page/text.
#pragma once

#include <string>

#include "tools/report.h"

namespace attn::tools::page {

// The HTML text. `view` is an object: templates find its values by name, as text with everything
// escaped that HTML has a meaning for. Null, false and "" are the same to a section of a template;
// numbers are written as JSON does, and beside a list `x` is
// `has_x`, whether it has any. Two keys are not escaped: `picture`, which is SVG, and `data`,
// a value for the scripts, which becomes JSON that no script element can end in.
std::string page_of(const Json& view);

}  // namespace attn::tools::page
