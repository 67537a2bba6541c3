// Generates random specs of what attnc's own kernels compute, whose values can be compared between
// a device and the reference: head dimensions, layouts, masks that become bands, lists and classes,
// learned tensors, dropout, weights and epilogues, and the expressions of typed_spec.h. The
// reference evaluates one in less than a second.
#pragma once

#include <cstdint>
#include <string>

namespace attn::fuzz {

// Returns DSL text with all dimensions bound. `trained`: with what has gradients alone, and a
// clause `grad`. The text is the same for the same arguments, if compiled by the same C++ compiler.
std::string kernel_spec(std::uint64_t number, bool trained);

}  // namespace attn::fuzz
