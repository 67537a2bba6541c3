// Errors and warnings that follow from the sizes of a spec, for any bound tensors.
#pragma once

#include <cstdint>

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/analyze.h"
#include "compiler/target/context.h"

namespace attn::check {

// Evaluations that cost as much as one expression in all phases, the unit of diag::Sink::add_work.
inline constexpr std::uint64_t kEvaluationsOfWork = 200;

struct StaticSubject {
  const ir::Attention& written;     // as sema built it
  const ir::Attention& simplified;  // the same attention, simplified
  const sema::Spans& spans;         // of `written`
  support::Span name;               // of the attention; used if no other span is known
};

// Errors: out-of-range indexes, integer divisions by 0, shifts outside 0..31
// (masks/happens.h defines when they count), and constants that are NaN. Warnings, unless
// there are errors: scores that are not finite, divisions of reals by 0, integers that wrap around,
// masks that hide everything, and scores, tensors and params without an effect on weights.
void check_statically(const StaticSubject& subject, const target::Context& context,
                      diag::Sink& sink);

}  // namespace attn::check
