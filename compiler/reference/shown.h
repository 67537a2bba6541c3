// How many scores the masks and lengths of an attention show, whatever the scores are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"

namespace attn::reference {

struct Shown {
  double scores = 0;       // out of B Hq Sq Skv
  std::int64_t every = 1;  // only every so many rows were counted; 1: exact
};

// The tensors whose values the count depends on: those that masks read, and lengths.
std::vector<std::string> tensors_that_hide(const ir::Attention& attention);

// `inputs` must have tensors_that_hide and all params; others are ignored. Batches and heads are
// counted once if no mask depends on them. If more than `most` node evaluations would be needed,
// evenly spaced rows are sampled. Dimensions must be bound.
//
// Errors: binding (something is missing or has wrong dims; a value that a mask needs does not
// exist).
Result<Shown> shown_scores(const ir::Attention& attention, const Inputs& inputs,
                           double most = 0x1p29);

}  // namespace attn::reference
