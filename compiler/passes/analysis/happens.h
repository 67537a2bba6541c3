// What is certain to go wrong at some score that counts, whatever the tensors and params hold.
//
// A score counts where all masks hold, a sink always, and an operation counts where the reference
// evaluator says so (compiler/reference/evaluate.h): not in the branch that a select does not take,
// not beside `false &&` or `true ||`. Conditions that read tensors, params or lengths are not
// known, and what they guard is not certain; that is looked for when tensors are bound. A mask that
// varies with no index that the operation varies with is not such a guard: it hides all of it or
// nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"
#include "compiler/passes/analysis/range.h"

namespace attn::passes {

enum class Event : std::uint8_t {  // the first three have no value
  index_outside,                   // an index of a load lies outside of the tensor
  zero_divisor,                    // integer // or % by 0
  shift_outside,                   // a shift by less than 0 or more than 31
  overflow,                        // integer arithmetic that leaves 32 bits and wraps
  division_by_zero,                // a real by 0
  not_finite                       // the score, scale or sink is +inf or NaN
};

struct Happening {
  Event event = Event::overflow;
  ir::ExprId at = 0;        // the operation
  std::size_t operand = 0;  // of it: the index, divisor or shift count
  std::int64_t value = 0;   // of the operand there; of an overflow: of the exact result
  Box box;                  // of scores at which it happens; one of them, when it is not_finite
  double score = 0;         // division_by_zero, not_finite: the score at which it was seen
  std::vector<ir::ExprId> users;  // through which it counts: the nearest first, up to a root
};

struct Happenings {
  std::vector<Happening> found;
  bool stopped = false;  // not everything was looked at, or there are more
  std::int64_t evaluations = 0;
};

// At most one for each operation, and kMostHappenings of each kind: faults, overflows and the rest.
// An overflow hides those that are made of it. Overflows that feed a bit operation are meant, and
// are left out. Of the last three events it is enough that they happen with some tensors: masks
// that are not known are taken to hold, reals in tensors and params to be 0.75, the score to be 1.5
// or -1.5. With lengths the first row and key are taken to exist. What is not found within
// kMostEvaluations is left out; a value is the one that lies furthest outside, as far as was
// looked. An axis whose dimension is open counts with its first element.
inline constexpr std::int64_t kMostEvaluations = 1 << 20;  // of nodes, in all
inline constexpr std::ptrdiff_t kMostHappenings = 20;
Happenings happenings(const ir::Attention& attention);

// Whether it was shown that the masks hide every score, whatever tensors and params hold. Of open
// dimensions any size. Not shown where the effort ends; of lengths nothing is known. An attention
// without scores hides none.
bool hides_all(const ir::Attention& attention, Effort& effort);

}  // namespace attn::passes
