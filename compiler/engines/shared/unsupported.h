// Errors of lowering: what is unsupported and why, what works instead, and the position.
#pragma once

#include <string>

#include "compiler/ir/dag.h"
#include "runtime/base/status.h"

namespace attn::engines {

// Error `unsupported`, whose payload {"line", "column"} is the position in the spec; `help` becomes
// a note.
Error unsupported(ir::SourcePos pos, std::string message, std::string help = "");

// Error `invalid_spec` with the same payload, for errors that only sizes reveal.
Error spec_error(ir::SourcePos pos, std::string message);

}  // namespace attn::engines
