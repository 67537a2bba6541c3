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
  std::map<std::string, double> params;
};

struct Options {
  // Skip the rounding of q, k, v, captured tensors and o to their dtypes.
  bool unrounded = false;
  int threads = 0;  // 0: as many as the machine has
};

struct Outputs {
  io::HostTensor o;    // [B,Hq,Sq,Dv]
  io::HostTensor lse;  // [B,Hq,Sq]
};

// Every dimension must be bound. Errors: binding (a tensor or param missing, extra, or of other
// dims; an index out of range, naming tensor, index and place).
Result<Outputs> evaluate(const ir::Attention& attention, const Inputs& inputs,
                         const Options& options);

}  // namespace attn::reference
