// Sums along keys as what they are to kernels: captured tensors. An attention with sums is computed
// as three things: the sums, the attention that captures them, and, where learned tensors are
// summed, the gradients that go on from the gradients of the sums.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::ir {

// The attention without sums of its own: it captures them, and has their gradients in place of
// those of learned tensors that are read by sums alone. Nodes of the DAG keep their numbers.
Attention with_sums_given(const Attention& attention);

// Whether the attention has a gradient of this learned tensor: its `grad` clause, if there is one,
// lists it.
bool has_gradient(const Attention& attention, const CapturedTensor& tensor);

// Whether `value` reads the tensor.
bool reads(const Dag& dag, ExprId value, std::string_view tensor);

// Whether anything but sums reads the tensor.
bool is_read_besides_sums(const Attention& attention, std::string_view tensor);

// The learned tensors with a gradient to which one of a sum goes on, in order of declaration.
std::vector<std::string> summed_with_gradients(const Attention& attention);

}  // namespace attn::ir
