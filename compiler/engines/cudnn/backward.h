// Lowers a backward pass: its graph, in a form that cuDNN's fused backward engines match.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/engines/shared/products_backward.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

struct BackwardParts {
  const ir::Attention& attention;  // its dag contains the derivative
  ir::ExprId derivative = 0;       // real: d score / d scaled product
  std::set<std::string> wanted;    // of "dq", "dk", "dv"; others go to internal copies
};

// The step from q, k, v, o, lse and do to dq, dk and dv (gradient/differentiate.h has the
// formulas):
//
//   delta = sum(do o)                            P  = exp(score - lse), 0 where masks hide
//   dv = (dropped P)^T do                        dS = P (dropped (do v^T) - delta) derivative scale
//   dk = dS^T q                                  dq = dS k
//
// Masks are applied after lse is subtracted, so that empty rows (lse -inf) get weights of 0. The
// engine's kernels exchange two results through internal tensors: kDelta, and kQuerySum, which the
// deterministic form does not have: there cuDNN's own workspace holds a value per score.
//
// Requires bound dimensions. Errors: unsupported, with the position; those of ExpressionLowering.
Result<plan::CudnnStep> backward(const BackwardParts& parts, const masks::MaskForm& form);

inline constexpr const char* kDelta = "fused.delta";  // f32 [B,Hq,Sq]
inline constexpr const char* kQuerySum = "dq.sum";    // f32 [B,Hq,Sq,Dqk], padded as copies are

// f32 [B,Hq,Sq]: lse, but inf in rows without weights. Read instead of lse if score - lse could be
// NaN or lse is not a plain tensor.
inline constexpr const char* kLse = "lse.read";
bool reads_own_lse(const ir::Attention& attention, const masks::MaskForm& form);

// One cuDNN plan for dq, dk and dv, the steps that produce the tensors it needs, and the steps of
// `learned` after it. `gradients` are the program's outputs, in order. Requires simplified masks,
// bound dimensions, and keys.
//
// Errors: unsupported, with the position and a workaround; those of lower().
Result<plan::Program> lower_backward(const BackwardParts& parts,
                                     const std::vector<std::string>& gradients,
                                     LearnedGradients learned, const target::Context& context);

}  // namespace attn::engines
