// The tensors that the caller of a program binds.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/controls.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Of all that an attention knows, those that are `used`: q, k, v, then captured tensors in the
// order of declaration, then what layouts and dropout are controlled by, then outputs.
std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used,
                                            const Controls& controls);

}  // namespace attn::lowering
