// Programs for masks by which rows see their own segment alone (passes/segments.h): each segment
// is a ragged sequence of q, k, v and o as they lie, found anew at every execute.
//
//   documents.changes  i32 [rows of the tensor, pieces]: how many segments begin in each piece of
//                      a batch
//   documents.starts   i32 [B+1], B that of the ragged attention: where each begins among all rows;
//                      those that are not there begin where the batch ends
//   documents.lse      f32 [all rows, Hq]: as ragged kernels have it
//
// What is bound decides nothing but how far a sequence goes, and no further than its batch.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/segments.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// The attention of the segments with the layouts of `whole`: thd, with its strides. Errors:
// unsupported where the rows of all batches do not follow one another at one distance, and for max,
// sum_exp and gradients of learned tensors.
Result<ir::Attention> ragged(const ir::Attention& whole, const passes::Segments& segments,
                             bool backward);

// The program of `whole`, with a check of what is declared of the tensor. `program` is what
// lowering made of ragged(). Errors: unsupported where that checks what is gathered.
Result<plan::Program> of_segments(const ir::Attention& whole, const passes::Segments& segments,
                                  plan::Program program);

// A program that rests on what is declared of the tensor without reading it, with a check of that.
// The tensor is bound. Errors: unsupported where the program checks what is gathered.
Result<plan::Program> with_declared(const ir::Attention& whole, const passes::Segments& segments,
                                    plan::Program program);

}  // namespace attn::lowering
