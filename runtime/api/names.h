// The numbers of attn.h for what the house enumerates: those never change. Private to this room.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/api/attn.h"
#include "runtime/base/dtype.h"
#include "runtime/plan/program.h"
#include "runtime/plan/shape.h"

namespace attn::api {

attn_dtype number_of(DType type);
std::optional<DType> dtype_of(attn_dtype number);

attn_role number_of(plan::TensorRole role);  // not of internal ones, which nobody binds

// attn_shape::padded.
std::uint32_t padded_bits(const plan::Shape& shape);

}  // namespace attn::api
