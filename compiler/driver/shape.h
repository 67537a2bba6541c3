// What a plan says about its sizes.
#pragma once

#include "compiler/driver/driver.h"
#include "runtime/plan/shape.h"

namespace attn::driver {

// The sizes of the attention, all of which are bound, and those of which the program that was made
// of it may serve smaller ones (plan::Shape::padded). A dimension is such only where the program
// has the lengths that hide the rest, and where the spec means the same whatever the size is: no
// expression, stride, probability or bound of a reduction reads it, no other dimension but those of
// B, Sq and Skv follows from it, and no captured tensor becomes smaller as it grows. Where that
// cannot be said none is.
plan::Shape shape_of(const support::Source& source, const sema::Bindings& bindings,
                     const ir::Attention& attention, const plan::Program& program);

}  // namespace attn::driver
