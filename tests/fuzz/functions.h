// Calls of the functions of reals, for the generators: a new function is called without a change.
#pragma once

#include <fmt/format.h>

#include "compiler/ir/real_function.h"

namespace attn::fuzz {

// NAME(x) or NAME(x, y).
inline std::string call_of(const ir::RealFunction& function, const std::string& x,
                           const std::string& y) {
  const ir::OpInfo& op = ir::info(function.op);
  return op.operands == 1 ? fmt::format("{}({})", op.name, x)
                          : fmt::format("{}({}, {})", op.name, x, y);
}

}  // namespace attn::fuzz
