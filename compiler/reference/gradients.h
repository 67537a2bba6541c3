// The gradients of an attention, by reverse mode in double precision over the dense evaluation: the
// reference for every backward. Simple rather than fast.
#pragma once

#include "compiler/reference/evaluate.h"

namespace attn::reference {

// Sums by input: "q", "k", "v" and learned tensors, each of its shape.
using GradientSums = std::map<std::string, io::HostTensor, std::less<>>;

struct Gradients {
  Outputs outputs;  // of the forward, as evaluate() returns them
  GradientSums of;
  // Largest magnitudes, with `quantize`: amax_dp, amax_dq, amax_dk and amax_dv, each [1], of the
  // real gradients before scale_dp, scale_dq .. are applied; `of` is with them.
  GradientSums amax;
  // With Options::sizes, of the same dims: the root of the sum of squares of the terms of each
  // element. Rounding errors are relative to this, even where the terms cancel. A term is measured
  // before delta (differentiate.h) is subtracted from dP: in place of dP - delta, the root of dP^2
  // + delta^2 + dlse^2 + the squares of the products dO O that delta is the sum of. Not rounded;
  // but with scales of tensors, a weight or a ds counts as the smallest normal number of the type
  // that it is rounded to, if it is below that: its error may be as large. With an epilogue,
  // kernels round the gradient of o before it: dP counts with the root of the sum of squares of its
  // products. A term of a tensor that the epilogue reads depends on o: its size counts once more
  // where o is larger by the root of the sum of squares of what it is the sum of. (Without softmax
  // there is no delta.)
  GradientSums sizes;
  // With Options::sizes, the largest size of each gradient that `amax` tells of, ds for amax_dp,
  // like that before its scale.
  std::map<std::string, double> amax_sizes{};
};

// The gradients of sum(o * d_o), plus sum(lse * d_lse) with Options::d_lse, by each of `names`:
// "q", "k", "v" and learned tensors. d_o is [B,Hq,Sq,Dv]. Unless unrounded, d_o is rounded to the
// attention's dtype, and gradients to that of their input (stored as f32, else as f64).
//
// With `quantize`, d_o is rounded to the type of do, and, with x8 for what is stored of x:
//
//   delta = descale_do * descale_o * sum(do8 * o8)
//   dp = descale_do * descale_v * (do8 V8^T); ds = scale * p * (dp - delta) * score'
//   p8 = scale_s * p and ds8 = scale_dp * ds, rounded to dtype and to the type of do
//   dv = descale_s * descale_do * (p8^T do8), dq = descale_dp * descale_k * (ds8 K8), dk =
//   descale_dp * descale_q * (ds8^T Q8), each times its scale and rounded to its type
//
// amax_dp is that of ds, as cuDNN's kernels have it. Dropout applies to p8 and dp.
//
// With Scaling::mxfp8, and x~ for what x and the scales of its blocks stand for:
//
//   delta = sum(do_f16 * o); dp = do~ v_t~^T; ds = scale * p * (dp - delta) * score'
//   dv = (round(256 p) / 256)^T do_t~; dq = ds~ k_t~; dk = ds_t~^T q_t~
//
// where kernels round ds twice, in blocks of columns and in blocks of rows, each with its scale
// (ir::block_scale).
//
// max and sum_exp have no cotangent. Masks, lengths and what dropout keeps have no gradient; rows
// that see nothing, and rows and keys past the lengths, give zeros, whatever d_lse is. (Rows that
// see a sink alone have an lse, the sink, which then has its gradient.) Where an operation has no
// derivative, the convention is that of compiler/gradient/differentiate.h.
//
// Errors: those of evaluate; binding for a d_o or d_lse of wrong dims; invalid_argument for a name
// without a gradient.
Result<Gradients> gradients(const ir::Attention& attention, const Inputs& inputs,
                            const io::HostTensor& d_o, const std::vector<std::string>& names,
                            const Options& options);

// How many key heads are summed in parallel, 1 to `heads`: as many as have room for their own sums
// of learned tensors, all if nothing is learned. Does not depend on the machine.
std::int64_t heads_at_once(std::int64_t heads, const GradientSums& sums);

}  // namespace attn::reference
