// Text helpers shared by listings and canonical texts of graphs and programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"

namespace attn {

// `bytes` with quotes, backslashes and control characters escaped: one line, and different inputs
// give different outputs.
std::string escaped(std::string_view bytes);

// The same between double quotes.
std::string quoted(std::string_view bytes);

// "bf16[2,8,128,64]", followed by " strides [..]" unless the tensor is dense row-major.
std::string type_text(DType dtype, std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> strides);

}  // namespace attn
