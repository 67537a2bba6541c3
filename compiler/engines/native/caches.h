// Keys and values of 8 bits beside queries of 16 (ir::Cache): kernels widen them to the type of
// queries (attn/forward_widening.cuh; those of warps as they copy, attn/mma_rows.cuh), and scales
// go to what they are the same for.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::engines::native {

// Refuses what the kernels do not take beside a cache: `o_inner`, which would be without the scales
// of values; and those of warp groups rows that check_rows_of_cache refuses.
Status check_cache(const ir::Attention& attention, bool of_warps);
// Checks that warp groups can load the rows of k and v: head dimensions and strides are multiples
// of 16 bytes.
Status check_rows_of_cache(const ir::Attention& attention);

// The same attention, whose epilogue is of o times v_scale, and whose queries are multiplied by
// k_scale as they are converted to product_type, or whose score is of scores times k_scale; if
// these are the same for all keys of a head. Its cache stays, for the types. Another attention
// stays as it is. Kernels of warps convert no queries.
ir::Attention with_scales_in_expressions(ir::Attention attention, bool of_warps = false);

// The type of the floats that products of that attention take: f16 where keys and values of 8 bits
// are widened to it (attn/forward_converted_queries.cuh), or that of queries. Softmax's weights are
// raised as far as f16 has room; others may exceed it, or be lost in it, and so may those times
// scales of each key.
DType product_type(const ir::Attention& attention);

}  // namespace attn::engines::native
