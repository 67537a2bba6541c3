// The reference: evaluates an attention densely in double precision on the CPU, directly from the
// definition in compiler/ir/attention.h. Simple rather than fast; multithreaded over (b, h, row).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

struct Inputs {
  // q [B,Hq,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv] and every captured tensor as declared.
  std::map<std::string, io::HostTensor> tensors;
  // Params by name; with `seed` and `offset`, integers from 0 to 2^53, if dropout is random.
  std::map<std::string, double> params;
};

// Callbacks that tell how far an evaluation is; either may be empty.
struct Observer {
  // Called before the first row, with how many seconds all will take on this machine: measured on
  // some rows, spread over all, in a fifth of a second or two rows. An error ends the evaluation.
  std::function<Status(double seconds)> begins{};
  // Called a thousand times or less. Must be thread-safe.
  std::function<void(std::int64_t done, std::int64_t rows)> advances{};
};

// What a part of an attention is told of its whole rows, both [B,Hq,Sq]: the lse with the keys of
// all parts, and the sum of do * o; dlse is subtracted from it here.
struct WholeRows {
  io::HostTensor lse, delta;
};

struct Options {
  // Skip the rounding of q, k, v, captured tensors, o and 8-bit weights to their dtypes.
  bool unrounded = false;
  int threads = 0;     // 0: as many as the machine has
  bool sizes = false;  // gradients() also returns Gradients::sizes, in twice the time
  Observer observer{};
  // Whole rows, for gradients() without `quantize`, if the attention is a part of a larger
  // one, whose gradients are the sums of those of its parts. Outputs are still the part's own.
  const WholeRows* whole = nullptr;
  // dlse, [B,Hq,Sq]: gradients() is then of sum(o * d_o) + sum(lse * d_lse), with the lse of whole
  // rows. Required exactly where the attention reads_d_lse.
  const io::HostTensor* d_lse = nullptr;
  // d_o is what kernels have rounded, and is measured so by Gradients::sizes.
  bool rounds_d_o = false;
};

struct Outputs {
  io::HostTensor o;        // [B,Hq,Sq,Dv]
  io::HostTensor lse;      // [B,Hq,Sq]
  io::HostTensor max;      // [B,Hq,Sq]
  io::HostTensor sum_exp;  // [B,Hq,Sq]
  // Statistics with the sink; the same as max and sum_exp without one.
  io::HostTensor max_with_sink;      // [B,Hq,Sq]
  io::HostTensor sum_exp_with_sink;  // [B,Hq,Sq]
  io::HostTensor lse_without_sink;   // [B,Hq,Sq]
  // Largest magnitudes, with `quantize`.
  io::HostTensor amax_s;   // [1]
  io::HostTensor amax_o;   // [1]
  io::HostTensor o_inner;  // [B,Hq,Sq,Dv], o before the epilogue; empty without one
  // o and lse of branches, by their names (ir::Branch).
  std::map<std::string, io::HostTensor, std::less<>> branches{};
};

// Outputs are f32 (o as it is stored, rounded to its dtype, the others not), or f64 when unrounded.
//
// Random dropout takes its bits from reference::Random (philox.h).
//
// Integers are exact and wrap to 32 bits, as in a kernel. A gather out of range, an integer
// division by 0 and a shift outside 0..31 are errors where the result depends on them: not in the
// branch that a select does not take, nor beside `false &&` or `true ||`, nor in a score that a
// mask hides. NaN is a value: it reaches o and lse of every row that sees it. Keys that are not
// visible (a false mask, a score of -inf) contribute nothing, whatever their v holds.
//
// Errors: invalid_argument (an open dimension); unsupported (ir::check_random_dropout); binding (a
// tensor or param that is missing, unknown, has wrong dims, or has a value that its dtype cannot
// hold; a length outside 0..S; a tensor that violates its declaration, monotone or a number of
// runs; a missing value as above, with expression, index and place). Of several, the error of the
// first row. Throws std::bad_alloc if any thread runs out of memory.
Result<Outputs> evaluate(const ir::Attention& attention, const Inputs& inputs,
                         const Options& options);

}  // namespace attn::reference
