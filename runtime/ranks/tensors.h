// The tensors of the whole attention that callers bind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/ranks/program.h"

namespace attn::ranks {

// Null if there is none of that name.
const WholeTensor* find(const std::vector<WholeTensor>& tensors, std::string_view name);

inline constexpr std::string_view kLengthsQ = "lengths_q";  // i32 [B]

// A tensor of rows or keys, which find_carried() must know.
WholeTensor divided_tensor(std::string_view name, plan::TensorRole role, DType dtype,
                           const Division& division);

// Whether kernels can merge and add up tensors of the type.
bool can_merge(DType type);

// What is wrong with the tensors of a direction; empty if nothing is. A direction without tensors
// is not compiled.
std::string fault_of(const Division& division, plan::Direction direction);

}  // namespace attn::ranks
