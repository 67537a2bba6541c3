// Rows of 16-bit floats that kernels move 16 bytes at a time.
#pragma once

#include <cstdint>

#include "compiler/engines/shared/graph_builder.h"

namespace attn::engines {

inline constexpr std::int64_t kVector = 8;  // elements

// Whether the tensor's rows can be moved so: contiguous, in multiples of kVector elements.
inline bool moves_in_vectors(const Dims4& dims, const Dims4& strides) {
  bool aligned = dims[3] % kVector == 0 && strides[3] == 1;
  for (std::size_t axis = 0; axis < 3; ++axis) aligned &= strides[axis] % kVector == 0;
  return aligned;
}

}  // namespace attn::engines
