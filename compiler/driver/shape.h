// The sizes of a plan, and which of them are upper bounds.
#pragma once

#include "compiler/driver/driver.h"
#include "runtime/plan/shape.h"

namespace attn::driver {

// Returns the sizes of the attention, all of which must be bound, and the dimensions for which
// `program` also serves smaller sizes (plan::Shape::padded). A dimension is padded only if the
// program has lengths that hide the rest and the spec does not depend on its size: no expression,
// stride, probability or bound of a reduction reads it, only B, Sq and Skv may be derived from it,
// and no captured tensor becomes smaller as it grows. If this cannot be proved, no dimension is
// padded.
plan::Shape shape_of(const support::Source& source, const sema::Bindings& bindings,
                     const ir::Attention& attention, const plan::Program& program);

}  // namespace attn::driver
