#include "runtime/execute/addresses.h"

#include "runtime/base/check.h"

namespace attn::execute {
namespace {

struct Resolve {
  const Arguments& arguments;
  Scalars& scalars;

  void* operator()(const plan::TensorOperand& operand) const {
    for (const Arguments::Tensor& tensor : arguments.tensors()) {
      if (tensor.name == operand.name) return tensor.view.data;
    }
    return nullptr;
  }
  void* operator()(const plan::ConstantOperand& operand) const { return scalars.constant(operand); }
  void* operator()(const plan::ParamOperand& operand) const { return scalars.param(operand.name); }
};

}  // namespace

Addresses addresses_of(const plan::CudnnStep& step, const Arguments& arguments, Scalars& scalars) {
  Addresses addresses;
  for (const plan::Operand& operand : step.operands) {
    void* pointer = std::visit(Resolve{arguments, scalars}, operand.source);
    ATTN_CHECK(pointer != nullptr, "checked arguments name every operand");
    addresses.uids.push_back(operand.uid);
    addresses.pointers.push_back(pointer);
  }
  return addresses;
}

}  // namespace attn::execute
