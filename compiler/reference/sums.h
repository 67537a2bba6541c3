// Sums along keys (ir::KeySum): an attention with them is one that captures their values, and its
// gradients go on from theirs.
#pragma once

#include <string>
#include <vector>

#include "compiler/reference/bindings.h"
#include "compiler/reference/gradients.h"

namespace attn::reference {

// The same attention with sums as captured tensors, ir::with_sums_given, and its inputs.
struct GivenSums {
  ir::Attention attention;
  Inputs inputs;
};

// Adds the values of sums to those of what they sum; the other tensors need not be there. Errors:
// binding if what is summed has no value.
Status add_sums(const ir::Attention& attention, Bindings& bindings);

// Values are summed in double. Errors: those of bind(); binding if what is summed has no value.
Result<GivenSums> with_sums(const ir::Attention& attention, const Inputs& inputs,
                            const Options& options);

// gradients() of an attention with sums. Errors: the same.
Result<Gradients> gradients_through_sums(const ir::Attention& attention, const Inputs& inputs,
                                         const io::HostTensor& d_o,
                                         const std::vector<std::string>& names,
                                         const Options& options);

}  // namespace attn::reference
