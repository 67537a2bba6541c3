// Keys and values of 8 bits beside queries of 16 (ir::Cache): kernels widen them to the type of
// queries (attn/forward_widening.cuh), and scales go to what they are the same for.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::engines::native {

// Refuses what the kernels do not take beside a cache: other GPUs, head dimensions that are no
// multiples of 16, `o_inner`, which would be without the scales of values.
Status check_cache(const ir::Attention& attention, const target::Context& context);

// The same attention, whose score is of scores times k_scale, and whose epilogue is of o times
// v_scale, if these are the same for all keys of a head. Its cache stays, for the types. Another
// attention stays as it is.
ir::Attention with_scales_in_expressions(ir::Attention attention);

}  // namespace attn::engines::native
