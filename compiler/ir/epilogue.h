// The epilogue as the score of an attention, so that what is known of scores is known of it.
#pragma once

#include <map>
#include <string_view>

#include "compiler/ir/attention.h"

namespace attn::ir {

// An attention whose score is the epilogue: its keys are the columns of o (Skv is Dv), `score` is
// an element of o before the epilogue, and the column is the element's. It has the lengths of rows,
// tensors and params of the attention, which must have an epilogue; no masks, sink or dropout.
// Nothing computes it as such: it is for values, derivatives, ranges and text of the expression.
// `numbers`, if given, gets the view's node of each node of the attention that the view has.
Attention epilogue_view(const Attention& attention, std::map<ExprId, ExprId>* numbers = nullptr);

// The attention without its epilogue: o is what is o_inner with it. Its gradients are those of q, k
// and v, and of tensors that its other expressions read. Tensors stay declared.
Attention without_epilogue(const Attention& attention);

// Whether the epilogue reads the tensor, and whether anything else does.
bool epilogue_reads(const Attention& attention, std::string_view tensor);
bool others_read(const Attention& attention, std::string_view tensor);

}  // namespace attn::ir
