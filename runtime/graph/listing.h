// The words that listings and canonical texts of graphs and programs have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"

namespace attn {

// `bytes` with quotes, backslashes and control characters escaped: one line, and no two different
// inputs give the same output.
std::string escaped(std::string_view bytes);

// The same between double quotes.
std::string quoted(std::string_view bytes);

// "bf16[2,8,128,64]", with " strides [..]" after it unless they are those of a packed row-major
// tensor.
std::string type_text(DType dtype, std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> strides);

}  // namespace attn
