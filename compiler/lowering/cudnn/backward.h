// The graph of one backward pass in the shape that cuDNN's fused backward engines match.
#pragma once

#include <set>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

struct BackwardParts {
  const ir::Attention& attention;  // whose derivative is in its dag
  ir::ExprId derivative = 0;       // real: d score / d scaled product
  std::set<std::string> wanted;    // of "dq", "dk", "dv"; the others are written to their copies
};

// From q, k, v, o, lse and do to dq, dk and dv (gradient/differentiate.h has the formulas):
//
//   delta = sum(do o)                            P  = exp(score - lse), 0 where masks hide
//   dv = (dropped P)^T do                        dS = P (dropped (do v^T) - delta) derivative scale
//   dk = dS^T q                                  dq = dS k
//
// Masks are applied behind the difference to lse, so that a row that sees nothing (lse -inf) gets
// weights of 0. Two results between the engine's kernels are memory of ours: internal tensors
// kDelta, and kQuerySum, which is not there in the deterministic form: there cuDNN's own workspace
// holds a value for each score.
//
// Requires bound dimensions. Errors: unsupported, with the place; those of ExpressionLowering.
Result<plan::CudnnStep> backward(const BackwardParts& parts);

inline constexpr const char* kDelta = "fused.delta";  // f32 [B,Hq,Sq]
inline constexpr const char* kQuerySum = "dq.sum";    // f32 [B,Hq,Sq,Dqk], rounded up as copies are

// f32 [B,Hq,Sq]: lse, but inf in rows that have no weights. Read instead of lse where the
// difference to it could be NaN, or lse is not a plain tensor.
inline constexpr const char* kLse = "lse.read";
bool reads_own_lse(const ir::Attention& attention);

}  // namespace attn::lowering
