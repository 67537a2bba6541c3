// The operation graph of a cuDNN step as a view of the page: where its nodes are drawn.
#pragma once

#include <vector>

#include "runtime/plan/program.h"
#include "tools/report.h"

namespace attn::tools::page {

// More nodes than this are only listed.
inline constexpr std::size_t kMostDrawnNodes = 160;

// {"width", "height", "nodes": [{"left", "top", "width", "height", "x", "name_y", "type_y", "name",
// "type", "what", "clause", "kind"}], "edges": [{"path"}]}: first the memory that is read, then the
// nodes. `clauses` has the clause of each node, an index. Constants and params are written into the
// nodes that read them. Null for a graph of too many nodes.
Json graph_view(const plan::CudnnStep& step, const std::vector<std::size_t>& clauses);

}  // namespace attn::tools::page
