// Converts internal enums to the numbers of attn.h, which never change. Internal to runtime/api.
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

attn_role number_of(plan::TensorRole role);  // `role` must not be internal

// The bits of attn_shape::padded.
std::uint32_t padded_bits(const plan::Shape& shape);

}  // namespace attn::api
