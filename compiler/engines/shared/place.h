// Maps elements of packed copies to the tensors that the caller binds.
#pragma once

#include <string>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"

namespace attn::engines {

// Kernel statements for element `i` of a packed tensor of `dims`, at least those of "q", "k", "v"
// or "o". They define its indices `b`, `h`, `s` and `d`; `present`, whether the tensor has that
// element; and, if so, its `place` there. Elements past a batch's length are absent from thd and
// paged tensors, and from o where the engine ignores lengths (lengths.h).
std::string place_text(const ir::Attention& attention, const std::string& name, const Dims4& dims,
                       codegen::KernelText& kernel);

// Kernel statements that write element `i` of such a tensor from `copy`, packed with dims `copied`:
// 0 if it is not present, or nothing if the tensor has no such row.
std::string copy_out_text(const ir::Attention& attention, const std::string& name,
                          const std::string& copy, const Dims4& copied,
                          codegen::KernelText& kernel);

}  // namespace attn::engines
