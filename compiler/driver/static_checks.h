// What a spec gets wrong whatever is bound: errors and warnings that need the sizes, and not the
// types alone.
#pragma once

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/analyze.h"

namespace attn::driver {

struct StaticSubject {
  const ir::Attention& written;     // as sema made it
  const ir::Attention& simplified;  // the same
  const sema::Spans& spans;         // of `written`
  support::Span name;               // of the attention: where nothing else is known
};

// Errors: indexes outside of tensors, integer divisions by 0, shifts outside 0..31
// (passes/happens.h says when they count), and constants that are not a number. Warnings, unless
// there are errors: scores that are not finite, divisions of reals by 0, integers that wrap, and
// masks that show nothing.
void check_statically(const StaticSubject& subject, diag::Sink& sink);

}  // namespace attn::driver
