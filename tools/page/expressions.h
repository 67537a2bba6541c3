// The masks of an attention as data, for the scripts of a page that evaluate them.
#pragma once

#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/reference/bindings.h"
#include "tools/report.h"

namespace attn::tools::page {

// The conditions that a score must fulfil to be seen: the operands of conjunctions, in order, then
// the lengths.
struct Condition {
  ir::ExprId expression = 0;
  std::string text;  // in the language's own syntax
  SourcePos pos{};   // line 0: of no place in the spec
};

// Conditions of an attention that has its lengths as masks (masks_of_values/cells.h).
std::vector<Condition> conditions_of(const ir::Attention& attention);

// {"nodes": [{"op", "type", "of": [index..]?, "value"?, "name"?}], "roots": [index..]}: operands
// before their users. Dimensions and params are constants. Infinities and NaN are strings.
Json nodes_json(const ir::Attention& attention, const std::vector<Condition>& conditions,
                const reference::Bindings& values);

// {"doc": {"dims", "runs": "0*120,1"}}: elements row-major, runs of equal ones as VALUE*COUNT. Of
// the tensors that the conditions read; null for those whose text is long, of all together too.
Json tensors_json(const ir::Attention& attention, const std::vector<Condition>& conditions,
                  const reference::Bindings& values);

}  // namespace attn::tools::page
