// What ranks must have the same of.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"
#include "runtime/ranks/program.h"

namespace attn::ranks {

// The hash of all that ranks exchange by: the programs, the values that they are for, the kernels
// that move rows, and the plans of all ranks, in order. Not of division.family and division.only.
std::string family_hash(const Division& division, const plan::Family& family);

// Whether division.family is of the plans and kernels of the file. Not known of a file that has the
// plans of one rank (division.only). Errors: plan_damaged.
Status check_family(const Division& division, const plan::Family& family);

}  // namespace attn::ranks
