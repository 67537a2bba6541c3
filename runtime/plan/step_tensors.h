// The tensors that the steps of a program name.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>

#include "runtime/plan/program.h"

namespace attn::plan {

// Lets `change` edit every tensor operand of a step. What a kernel writes is named without an
// offset, and must stay so.
void change_tensors(Step& step, const std::function<void(TensorOperand&)>& change);

// The name of the tensor or param that is the source, or nullptr.
const std::string* name_of(const OperandSource& source);

// The tensors and params that derive steps read, that launches have as arguments, and that cuDNN's
// steps are bound to.
std::set<std::string> names_used(std::span<const Step> steps);

// Whether it reads or writes that tensor.
bool uses(const Step& step, const std::string& tensor);

}  // namespace attn::plan
