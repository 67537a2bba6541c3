// Programs for masks that let rows see only their own segment (engines/shared/segments.h). Each
// segment is a ragged sequence of q, k, v and o in place, found at every execute.
//
//   documents.changes  i32 [rows of the tensor, pieces]: how many segments begin in each piece of
//                      a batch
//   documents.starts   i32 [B+1], B that of the ragged attention: where each begins among all rows;
//                      absent ones begin where their batch ends
//   documents.lse      f32 [all rows, Hq]: in the layout of ragged kernels
//
// Bound values only decide how long a sequence is, at most to the end of its batch.
#pragma once

#include "compiler/engines/shared/segments.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// The attention of the segments with the layouts of `whole`: thd, with its strides. Errors:
// unsupported unless the rows of all batches are evenly spaced, and for max, sum_exp and gradients
// of learned tensors.
Result<ir::Attention> ragged(const ir::Attention& whole, const Segments& segments, bool backward);

// The program of `whole`, with a check of the tensor's declared facts. `program` is the lowered
// ragged(). Errors: unsupported if that checks gathered indices.
Result<plan::Program> of_segments(const ir::Attention& whole, const Segments& segments,
                                  plan::Program program);

// A program that relies on the tensor's declared facts without reading it, with a check of them.
// The tensor is bound. Errors: unsupported if the program checks gathered indices.
Result<plan::Program> with_declared(const ir::Attention& whole, const Segments& segments,
                                    plan::Program program);

}  // namespace attn::engines
