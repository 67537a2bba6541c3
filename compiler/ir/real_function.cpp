#include "compiler/ir/real_function.h"

#include <algorithm>

namespace attn::ir {
namespace {

constexpr RealFunction kFunctions[] = {
#define ATTN_REAL_FUNCTION(name, id, operands, doc, value, derivative, slopes, range, cuda, cudnn, \
                           cost)                                                                   \
  {Op::name##_, cuda, cudnn, cost},
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
};

}  // namespace

std::span<const RealFunction> real_functions() { return kFunctions; }

const RealFunction* find_real_function(Op op) {
  const auto* found = std::ranges::find(kFunctions, op, &RealFunction::op);
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace attn::ir
