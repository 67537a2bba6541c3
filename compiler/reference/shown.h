// How many scores an attention shows: what its masks and lengths leave, whatever the scores are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"

namespace attn::reference {

struct Shown {
  double scores = 0;       // of B Hq Sq Skv
  std::int64_t every = 1;  // counted in every so many rows; 1: exact
};

// The tensors whose values the count depends on: those that masks read, and lengths.
std::vector<std::string> tensors_that_hide(const ir::Attention& attention);

// `inputs` has tensors_that_hide and all params; others are not looked at. Batches and heads are
// counted once where no mask depends on them. Where more than `most` nodes of expressions would
// have to be evaluated, evenly spaced rows stand for the others. Every dimension must be bound.
//
// Errors: binding (something is missing or of other dims; a value that a mask needs does not
// exist).
Result<Shown> shown_scores(const ir::Attention& attention, const Inputs& inputs,
                           double most = 0x1p29);

}  // namespace attn::reference
