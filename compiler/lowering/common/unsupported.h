// Errors of lowering: what the spec asks for, why it is not served, what would work, and where.
#pragma once

#include <string>

#include "compiler/ir/dag.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// Error `unsupported` whose payload {"line", "column"} places it in the spec; `help` becomes a
// note.
Error unsupported(ir::SourcePos pos, std::string message, std::string help = "");

// Error `invalid_spec`, placed likewise: what only sizes show to be wrong.
Error spec_error(ir::SourcePos pos, std::string message);

}  // namespace attn::lowering
