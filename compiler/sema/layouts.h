// Converts the layout clause to the memory layouts of q, k, v and o.
#pragma once

#include <map>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"

namespace attn::sema {

// Returns all four; the default is bshd, and `clause` may be null. Strides must be known and
// positive, and no two elements of o may have the same address.
std::map<std::string, ir::Layout, std::less<>> make_layouts(const ast::LayoutClause* clause,
                                                            Environment& environment,
                                                            diag::Sink& sink);

}  // namespace attn::sema
