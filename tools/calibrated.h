// Scales of 8-bit attention, computed from the data, for specs that give none: with scales of 1,
// small values lose most of their bits, and kernels and the reference differ by more than the
// bounds.
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

// Sets the scales of the weights, o, ds and the gradients, each with its descale. Each scale is the
// power of two that brings the largest magnitude into the upper half of the type's range. A scale
// stays if it or its descale is in `given`; the scales of q, k, v and do belong to their values.
// The magnitudes are the reference's, without rounding. `inputs` has the cotangent if gradients are
// wanted. Errors: those of the reference.
Status calibrate(const ir::Attention& attention, const std::set<std::string>& given, Needs needs,
                 Inputs& inputs);

}  // namespace attn::tools
