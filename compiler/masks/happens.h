// Faults that are certain at some score that counts, whatever the tensors and params hold.
//
// A score counts where all masks hold; a sink always counts. An operation counts where the
// reference evaluator needs it (compiler/reference/evaluate.h): not in the branch that a select
// does not take, nor beside `false &&` or `true ||`. Conditions that read tensors, params or
// lengths are unknown, so what they guard is not certain; that is checked when tensors are bound. A
// mask that shares no index with the operation is not such a guard: it hides all of it or nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/masks/effort.h"
#include "compiler/masks/range.h"

namespace attn::masks {

enum class Event : std::uint8_t {  // the first three have no value
  index_outside,                   // an index of a load is outside the tensor
  zero_divisor,                    // integer // or % by 0
  shift_outside,                   // a shift by less than 0 or more than 31
  overflow,                        // integer arithmetic that leaves 32 bits and wraps
  division_by_zero,                // real division by 0
  not_finite                       // the score, scale or sink is +inf or NaN
};

struct Happening {
  Event event = Event::overflow;
  ir::ExprId at = 0;              // the operation
  std::size_t operand = 0;        // its index, divisor or shift count
  std::int64_t value = 0;         // of the operand; for an overflow, the exact result
  Box box;                        // of scores at which it happens; for not_finite, one of them
  double score = 0;               // division_by_zero, not_finite: the score at which it was seen
  std::vector<ir::ExprId> users;  // through which it counts, from the nearest up to a root
};

struct Happenings {
  std::vector<Happening> found;
  bool stopped = false;  // the search is incomplete, or there are more
  std::int64_t evaluations = 0;
};

// Returns at most one happening per operation, and kMostHappenings of each kind: faults, overflows
// and others. An overflow suppresses those that depend on it. Overflows of sums that feed a bit
// operation are intended and omitted; products there are other numbers in 64 bits, which frameworks
// have. The last three events are reported if they happen with some tensors:
// unknown masks are assumed to hold, reals in tensors and params to be 0.75, and the score to be
// 1.5 or -1.5. With lengths, the first row and key are assumed to exist. Whatever is not found
// within kMostEvaluations is omitted; `value` is the one found that lies furthest outside. An open
// dimension is represented by its first index. All visible scores are in the band, which is that of
// the simplified attention (MaskAnalysis::form).
inline constexpr std::int64_t kMostEvaluations = 1 << 20;  // of nodes, in all
inline constexpr std::ptrdiff_t kMostHappenings = 20;
Happenings happenings(const ir::Attention& attention, const Band& band);

// True if proven that the masks hide every score, whatever tensors and params hold, for any size of
// open dimensions. Lengths are unknown. False if the effort runs out or there are no scores.
bool hides_all(const ir::Attention& attention, Effort& effort);

}  // namespace attn::masks
