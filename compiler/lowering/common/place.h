// Where elements of packed copies lie in the tensors that the caller binds.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/lowering/common/kernel_text.h"
#include "compiler/lowering/cudnn/graph_builder.h"

namespace attn::lowering {

// Statements for a kernel, about element `i` of a packed tensor of `dims`, at least those of "q",
// "k", "v" or "o": its indices `b`, `h`, `s` and `d`; whether the tensor has that element,
// `present`; if so, the element's `place` in it. Elements past a batch's length are not present
// where only lengths tell (thd and paged tensors, and o where they are ignored: lengths.h).
std::string place_text(const ir::Attention& attention, const std::string& name, const Dims4& dims,
                       KernelText& kernel);

// Statements that write element `i` of such a tensor, packed, from `copy`, which is packed too and
// has the dims `copied`: 0 where it is not present, or nothing where the tensor has no such row.
std::string copy_out_text(const ir::Attention& attention, const std::string& name,
                          const std::string& copy, const Dims4& copied, KernelText& kernel);

}  // namespace attn::lowering
