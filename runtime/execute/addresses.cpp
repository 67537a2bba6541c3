#include "runtime/execute/addresses.h"

#include <cstdint>
#include <numeric>
#include <span>

#include "runtime/base/check.h"

namespace attn::execute {
namespace {

struct Resolve {
  const Memory& memory;

  void* operator()(const plan::TensorOperand& operand) const {
    const auto internal = memory.internals.find(operand.name);
    if (internal != memory.internals.end()) return internal->second;
    for (const Arguments::Tensor& tensor : memory.arguments.tensors()) {
      if (tensor.name == operand.name) return tensor.view.data;
    }
    return nullptr;
  }
  void* operator()(const plan::ConstantOperand& operand) const {
    return memory.scalars.constant(operand);
  }
  void* operator()(const plan::ParamOperand& operand) const {
    return memory.scalars.param(operand.name);
  }
  void* operator()(const plan::CountingOperand&) const { return memory.counting; }
};

void* resolve(const plan::OperandSource& source, const Memory& memory) {
  void* pointer = std::visit(Resolve{memory}, source);
  ATTN_CHECK(pointer != nullptr, "checked arguments name every operand");
  return pointer;
}

}  // namespace

void add_internals(Memory& memory, const plan::InternalPlaces& places, void* base) {
  for (const auto& [name, offset] : places.offsets) {
    memory.internals[name] = static_cast<std::byte*>(base) + offset;
  }
}

Addresses addresses_of(const plan::CudnnStep& step, const Memory& memory) {
  Addresses addresses;
  for (const plan::Operand& operand : step.operands) {
    addresses.uids.push_back(operand.uid);
    addresses.pointers.push_back(resolve(operand.source, memory));
  }
  return addresses;
}

KernelArguments::KernelArguments(const plan::DeriveStep& step, const Memory& memory) {
  tensors_.reserve(step.outputs.size() + step.inputs.size());
  for (const std::string& output : step.outputs) add(plan::TensorOperand{output}, memory);
  for (const plan::OperandSource& input : step.inputs) add(input, memory);
}

KernelArguments::KernelArguments(void* output, const std::vector<plan::OperandSource>& inputs,
                                 const Memory& memory) {
  tensors_.reserve(1 + inputs.size());
  add(output);
  for (const plan::OperandSource& input : inputs) add(input, memory);
}

void KernelArguments::add(void* tensor) {
  tensors_.push_back(tensor);
  arguments_.push_back(&tensors_.back());
}

void KernelArguments::add(const plan::OperandSource& source, const Memory& memory) {
  void* pointer = resolve(source, memory);
  if (!std::holds_alternative<plan::ParamOperand>(source)) return add(pointer);
  arguments_.push_back(pointer);
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
