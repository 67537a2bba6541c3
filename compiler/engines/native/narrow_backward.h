// What the backward of an 8-bit attention has beside that of 16 bits. A kernel before widens q, k,
// v and do to bf16, exactly (attn/backward_widening.cuh), and the products are those of bf16.
// Scales are read when the kernels run: those of q and k by scores, all others by gradients.
//
//   native.rows  bf16: q, k, v and do; rows of a head follow each other (bhsd), or packed ones are
//                packed (thd)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

inline constexpr const char* kRowsTensor = "native.rows";
inline constexpr const char* kWidened[] = {"q", "k", "v", "do"};
// Outputs of every such backward.
inline constexpr const char* kAmaxOfGradients[] = {"amax_dp", "amax_dq", "amax_dk", "amax_dv"};

// Errors: unsupported, for scales of blocks, and without scales of gradients.
Status check_narrow_backward(const ir::Attention& attention);

// The attention whose q, k, v and do are those in kRowsTensor.
ir::Attention with_wide_rows(const ir::Attention& attention);

// Where the rows of one of kWidened begin, and how many elements all of them have.
plan::TensorOperand wide_rows(const ir::Attention& attention, const std::string& name);
std::int64_t elements_of_wide_rows(const ir::Attention& attention);

// Bytes that the kernel before moves, beside those that that of 16 bits does.
double bytes_of_widening(const ir::Attention& attention);

// Adds the scales that the kernels read.
void add_scales_of_gradients(const ir::Attention& attention, codegen::KernelInputs& inputs);

// Methods of `Expressions`, which has scale_of_attention() and kKeptScale: what sums of gradients
// are multiplied with, and gradients before they are rounded.
std::string factors_of_gradients_text(const ir::Attention& attention);

// What the gradient of a score has to be multiplied with, in terms of the methods above.
inline constexpr const char* kSlopeFactor = "expressions.slope_factor()";

}  // namespace attn::engines::native
