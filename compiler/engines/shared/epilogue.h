// Backwards of attentions with an epilogue, from those without: a step before makes the gradient of
// o before the epilogue, which the backward then reads in place of do, and the gradients of the
// tensors that the epilogue reads.
//
//   epilogue.do     internal, as o: the gradient of o before the epilogue
//   epilogue.parts  internal, f32: sums of learned tensors' gradients, in parts of the rows
#pragma once

#include <functional>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Refuses gradients that the step does not compute. Errors: unsupported, with the place.
Status check_epilogue_gradients(const ir::Attention& attention);

// Whether anything but the epilogue's tensors has a gradient: then there is an inner backward.
bool has_inner_gradients(const ir::Attention& attention);

// The backward of the attention, whose epilogue's gradients are checked: `inner` is that of
// ir::without_epilogue, or an empty program if there is none. It reads o_inner in place of o.
plan::Program through_epilogue(const ir::Attention& attention, plan::Program inner);

}  // namespace attn::engines
