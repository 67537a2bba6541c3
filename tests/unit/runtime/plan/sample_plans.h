// Test programs and plans: fixed ones, and any number of random valid ones.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/bundle.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::plan::testing {

using graph::testing::Random;

// One step: the sample graph with its tensors, constants and a param.
Program sample_program();

Plan sample_plan();
// The same with its alternatives, parts, a rewrite that was disabled, and Sq may be smaller.
Plan decided_plan();
// The sample with a mask that cuDNN takes for that of padding (runtime/cudnn/known_bad.def).
Program like_padding_program();
Plan like_padding_plan();

// The sample with two internal tensors: "places" i32[3], computed at load, and "bias" f32[2,5],
// recomputed by each execute from "places", the captured tensor "table" f32[7] and the param "cap";
// plus a check of table's indices.
Program derived_program();
Plan derived_plan();
// The sample, then a loop of three iterations: a product of an internal tensor's rows, and a kernel
// that adds it to a sum, which amends o.
Program looping_program();
Plan looping_plan();
// Two launches of a kernel step, with a tensor map, a cluster, shared memory and a counter.
Program kernel_program();
Plan kernel_plan();
// The same with a promotion of its map, a second launch that overlaps the first, and alternatives
// that have signatures.
Plan promoting_plan();
// Two launches, of which the first makes a schedule of lengths for the second, which overlaps it.
Program scheduled_program();
Plan scheduled_plan();
// The sample in 8 bits: q, k, v and o in e4m3, a scale, and the largest magnitude of what it
// scales.
Program quantized_program();
Plan quantized_plan();
// One cuDNN step with tensors addressed by a page table and by cu_seqlens converted to offsets.
Program controlled_program();
Plan controlled_plan();
// One launch over tensors with bound strides: q and o packed, k and v in pages.
Program bound_program();
// The same, with a map of k whose last dimension has pages and heads, and a stride in its steps.
Program stepped_program();
Plan bound_plan();
// One cuDNN step that computes dq, plus the other inputs of a backward: o, lse and do.
Program backward_program();
Plan backward_plan();
// The derived and the backward plan.
Bundle sample_pair();
// All plans above.
std::vector<Plan> sample_plans();

// A valid program with one to three steps that pass their outputs on unchanged.
Program random_program(Random& random);
Plan random_plan(Random& random);

// The plan with a new signature, after a change.
Plan signed_again(Plan plan);

// The plan file with checksums of header, table and sections recomputed.
std::string resealed(std::string bytes);

}  // namespace attn::plan::testing
