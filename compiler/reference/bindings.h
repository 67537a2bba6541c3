// The inputs of one evaluation, checked against the attention and rounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"

namespace attn::reference {

// Every tensor has the dims that the attention says; every integer is one of its dtype's and fits
// in 32 bits, every boolean is 0 or 1. Reals are rounded to their dtypes unless unrounded.
struct Bindings {
  std::map<std::string, io::HostTensor, std::less<>> tensors;
  std::map<std::string, double, std::less<>> params;
};

// Errors: invalid_argument when a dimension is open; binding when something is missing, extra, or
// does not fit.
Result<Bindings> bind(const ir::Attention& attention, const Inputs& inputs, bool unrounded);

}  // namespace attn::reference
