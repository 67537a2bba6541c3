#include "runtime/execute/addresses.h"

#include <cstdint>
#include <numeric>
#include <span>

#include "runtime/base/check.h"

namespace attn::execute {
namespace {

struct Resolve {
  const Arguments& arguments;
  Scalars& scalars;
  void* counting;

  void* operator()(const plan::TensorOperand& operand) const {
    for (const Arguments::Tensor& tensor : arguments.tensors()) {
      if (tensor.name == operand.name) return tensor.view.data;
    }
    return nullptr;
  }
  void* operator()(const plan::ConstantOperand& operand) const { return scalars.constant(operand); }
  void* operator()(const plan::ParamOperand& operand) const { return scalars.param(operand.name); }
  void* operator()(const plan::CountingOperand&) const { return counting; }
};

}  // namespace

Addresses addresses_of(const plan::CudnnStep& step, const Arguments& arguments, Scalars& scalars,
                       void* counting) {
  Addresses addresses;
  for (const plan::Operand& operand : step.operands) {
    void* pointer = std::visit(Resolve{arguments, scalars, counting}, operand.source);
    ATTN_CHECK(pointer != nullptr, "checked arguments name every operand");
    addresses.uids.push_back(operand.uid);
    addresses.pointers.push_back(pointer);
  }
  return addresses;
}

Result<cuda::DeviceBuffer> counting_numbers(const plan::Program& program,
                                            const cuda::Device& device) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(plan::counting_elements(program)));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto bytes = std::as_bytes(std::span(numbers));
  ATTN_ASSIGN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::allocate(device, bytes.size()));
  if (!numbers.empty()) ATTN_RETURN_IF_ERROR(buffer.upload(bytes));
  return buffer;
}

}  // namespace attn::execute
