// What `quantize mxfp8` asks of a spec, and the tensors that it declares: scales of blocks, and the
// copies of tensors that the backward reads.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::sema {

// Reports head dimensions that blocks do not divide, layouts in which a block may have elements of
// two sequences, and outputs that do not exist. attention.layouts and its outputs are set.
void check_blocks(const ast::Spec& spec, const ast::Clause& quantize,
                  const ir::Attention& attention, diag::Sink& sink);

// Adds the scales, each with the default 1, and the copies. Of the backward's if `trains`.
void declare_blocks(bool trains, ir::Attention& attention);

}  // namespace attn::sema
