// The inputs of one evaluation, checked against the attention and rounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"

namespace attn::reference {

// Tensors have the dims of the attention; integers fit their dtype and 32 bits, booleans are 0 or
// 1. Reals are rounded to their dtypes unless unrounded. Tensors with scales of blocks are times
// these, and their copies are [B,H,S,D] in every layout.
struct Bindings {
  std::map<std::string, io::HostTensor, std::less<>> tensors;
  std::map<std::string, double, std::less<>> params;
};

// Errors: invalid_argument if a dimension is open; binding if something is missing, unknown, or
// does not fit.
Result<Bindings> bind(const ir::Attention& attention, const Inputs& inputs, bool unrounded);

}  // namespace attn::reference
