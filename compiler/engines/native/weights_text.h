// The text of what makes weights of scores, for classes `Expressions` of both directions.
#pragma once

#include <string>

#include "compiler/gradient/differentiate.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

// Constants that say what weights are, where they are neither softmax nor a sigmoid: kLinear, or
// kQuotient, kExponential and kUnit (attn/reals.cuh).
std::string kinds_of_weights(const ir::Attention& attention);

// Whether scores may be hidden by themselves, and, of a quotient, the method parts() of the
// forward. Empty where neither is needed.
std::string forward_weights_text(const ir::Attention& attention);
// The method slopes() of the backward. Empty without a quotient.
std::string quotient_slopes_text(const gradient::Derivatives& derivatives);

}  // namespace attn::engines::native
