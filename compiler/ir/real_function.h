// What the rooms read of a function in real_functions.def, beside what each expands for itself.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/ir/op.h"

namespace attn::ir {

struct RealFunction {
  Op op;
  std::string_view cuda;   // {0} and {1} are the operands
  std::string_view cudnn;  // a pointwise mode, "composed" or "none"
  double cost;             // of one value in a kernel, where a sum costs 1

  bool is_in_cudnn() const { return cudnn != "none"; }
  bool is_composed() const { return cudnn == "composed"; }
};

std::span<const RealFunction> real_functions();
const RealFunction* find_real_function(Op op);  // null if real_functions.def does not have it

}  // namespace attn::ir
