// The layout clause -> how q, k, v and o lie in memory.
#pragma once

#include <map>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"

namespace attn::sema {

// All four; bshd where the clause (which may be absent) says nothing. Strides must be known and
// positive, and no two elements of o may share a place.
std::map<std::string, ir::Layout, std::less<>> make_layouts(const ast::LayoutClause* clause,
                                                            Environment& environment,
                                                            diag::Sink& sink);

}  // namespace attn::sema
