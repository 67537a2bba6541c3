// Programs and plans to test with: one that never changes, and any number of random valid ones.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::plan::testing {

using graph::testing::Random;

// One step: the sample graph with its tensors, constants and a param.
Program sample_program();

// The plan stored in tests/compat/v1.plan. Change it and that file no longer says what it should.
Plan sample_plan();
// The same, with the sizes that it is for, of which Sq may be smaller.
Plan shaped_plan();
// That, with what it was chosen among.
Plan chosen_plan();

// The sample with two internal tensors: "places" i32[3], made once, and "bias" f32[2,5], made at
// every execute from "places", the captured tensor "table" f32[7] and the param "cap", and
// a check of table's indices.
Program derived_program();
Plan derived_plan();
// The sample, then a loop of three turns: a product of an internal tensor's rows, and a kernel that
// adds it to a sum, which amends o.
Program looping_program();
Plan looping_plan();
// One cuDNN step whose tensors are addressed by cu_seqlens, made into offsets, and a page table.
Program controlled_program();
Plan controlled_plan();
// One cuDNN step that makes dq, beside what a backward is given besides: o, lse and do.
Program backward_program();
Plan backward_plan();
// The derived plan and the backward one.
Bundle sample_pair();

// Valid, with one to three steps that hand their outputs on as they are.
Program random_program(Random& random);
Plan random_plan(Random& random);

// The plan with its signature made anew, for those who changed something.
Plan signed_again(Plan plan);

// The bytes of a plan file with header, table and section checksums made to fit what they say.
std::string resealed(std::string bytes);

}  // namespace attn::plan::testing
