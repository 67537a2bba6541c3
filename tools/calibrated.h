// Scales of 8-bit attention from the data, for specs that give none: with 1, most of what is small
// would vanish, and the rounding of what is left would be compared with itself.
#pragma once

#include <set>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/support/source.h"
#include "runtime/base/status.h"
#include "tools/inputs.h"

namespace attn::tools {

// The scales whose values a spec writes.
std::set<std::string> written_scales(const support::Source& source);

// Sets the scales of the weights, of o, of ds and of the gradients, and what takes them back, to
// powers of two with which the largest magnitude lies in the upper half of what the type holds:
// those that are not in `given`, nor what takes them back. The magnitudes are the reference's,
// without rounding. The scales of q, k, v and do belong to their values, and stay. `inputs` has the
// cotangent if gradients are wanted. Errors: those of the reference.
Status calibrate(const ir::Attention& attention, const std::set<std::string>& given, Needs needs,
                 Inputs& inputs);

}  // namespace attn::tools
