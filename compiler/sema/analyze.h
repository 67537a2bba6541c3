// ast -> ir: names, types, shapes, defaults; every error with a place.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/bindings.h"

namespace attn::sema {

// The files that the spec imports are read. Nothing when errors were reported; a library, which has
// no attention, is an error. Dimensions without a size stay open (ir::Op::dim_). A binding
// that names nothing in the spec, or has no meaning as a number, is an error. Of a dimension with a
// set of sizes the first one is taken, unless it is bound.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink);

// One for each plan that the spec asks for: `bindings`, with every combination of the sizes of
// dimensions that have a set of them and are not bound. At least one; for a spec with errors, which
// analyze() reports, it is `bindings` alone.
std::vector<Bindings> variants(const ast::Spec& spec, const Bindings& bindings);

}  // namespace attn::sema
