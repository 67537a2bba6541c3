// A hand-built program: scores = q k^T * scale (a param), causal mask, softmax, outputs o and lse.
// And the same computation on the host.
#pragma once

#include <map>
#include <string>

#include "runtime/io/host_tensor.h"
#include "runtime/plan/program.h"
#include "tests/unit/runtime/worker/graphs.h"

namespace attn::testing {

// Tensors q [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], o [B,Hq,Sq,D], lse [B,Hq,Sq], contiguous; param
// "scale"; constant -inf. `mask` is none or causal.
plan::Program attention_program(const AttentionShape& shape, Mask mask);

// Random values for q, k and v, rounded to the shape's dtype.
std::map<std::string, io::HostTensor> random_inputs(const plan::Program& program);

struct HostOutputs {
  io::HostTensor o;
  io::HostTensor lse;
};

// Dense, in double precision.
HostOutputs causal_attention(const std::map<std::string, io::HostTensor>& inputs, double scale);

// Relative L2 distance.
double distance(const io::HostTensor& value, const io::HostTensor& wanted);
double largest_difference(const io::HostTensor& value, const io::HostTensor& wanted);

}  // namespace attn::testing
