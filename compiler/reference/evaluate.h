// The oracle: one attention evaluated densely in double precision on the CPU, straight from the
// meaning in compiler/ir/attention.h. Simple before fast; several threads over (b, h, row).
#pragma once

#include <map>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

struct Inputs {
  // q [B,Hq,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv] and every captured tensor as declared.
  std::map<std::string, io::HostTensor> tensors;
  // By name; `seed` and `offset`, integers from 0 to 2^53, are among them when dropout is random.
  std::map<std::string, double> params;
};

struct Options {
  // Skip the rounding of q, k, v, captured tensors and o to their dtypes.
  bool unrounded = false;
  int threads = 0;     // 0: as many as the machine has
  bool sizes = false;  // of gradients: Gradients::sizes too, in twice the time
};

struct Outputs {
  io::HostTensor o;        // [B,Hq,Sq,Dv]
  io::HostTensor lse;      // [B,Hq,Sq]
  io::HostTensor max;      // [B,Hq,Sq]
  io::HostTensor sum_exp;  // [B,Hq,Sq]
  // With the sink, or as max and sum_exp where there is none.
  io::HostTensor max_with_sink;      // [B,Hq,Sq]
  io::HostTensor sum_exp_with_sink;  // [B,Hq,Sq]
};

// Outputs are f32 (o rounded to the attention's dtype, the others not), or f64 when unrounded.
//
// Random dropout takes its bits from reference::is_kept (philox.h).
//
// Integers are exact and wrap to 32 bits, as in a kernel. A gather out of range, an integer
// division by 0 and a shift outside 0..31 are errors where the result depends on them: not in the
// branch that a select does not take, not beside `false &&` or `true ||`, not in a score that a
// mask hides. NaN is a value: it reaches o and lse of every row that sees it. Keys that are not
// visible (a false mask, a score of -inf) reach nothing, whatever their v holds.
//
// Errors: invalid_argument (an open dimension); binding (a tensor or param missing, extra, of other
// dims, or with a value that its dtype has not; a length outside 0..S; a tensor that is not what it
// is declared to be, monotone or of so many runs; a value that does not exist, as above, naming
// expression, index and place). Of several, the one of the first row. Throws
// std::bad_alloc when memory is not enough, whichever thread it was.
Result<Outputs> evaluate(const ir::Attention& attention, const Inputs& inputs,
                         const Options& options);

}  // namespace attn::reference
