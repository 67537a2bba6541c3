// ast -> ir: names, types, shapes, defaults; every error with a place.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::sema {

// --bind NAME=VALUE: dimensions ("Sq", or "D" for both head dims) and spec parameters.
using Bindings = std::map<std::string, std::string>;

// Nothing when errors were reported. Dimensions without a size stay open (ir::Op::dim_). A binding
// that names nothing in the spec, or has no meaning as a number, is an error.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink);

}  // namespace attn::sema
