#include "runtime/execute/addresses.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/base/check.h"

namespace attn::execute {

Place Place::plus(std::size_t bytes) const {
  Place place = *this;
  if (base == Base::tensor) place.inside += bytes;
  if (base == Base::workspace) place.index += bytes;
  if (base == Base::none && bytes > 0) place.fixed = static_cast<std::byte*>(fixed) + bytes;
  return place;
}

Memory::Memory(const plan::Program& program, Scalars& scalars, void* counting)
    : scalars_(scalars), counting_(counting) {
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    tensors_[program.tensors[i].name] = Place::of_tensor(i);
  }
  for (const auto* tensors : {&program.tensors, &program.internals}) {
    for (const plan::TensorInfo& tensor : *tensors) widths_[tensor.name] = size_of(tensor.dtype);
  }
}

void Memory::add_internals(const plan::InternalPlaces& places, void* base) {
  for (const auto& [name, offset] : places.offsets) {
    tensors_[name] = Place::at(static_cast<std::byte*>(base) + offset);
  }
}

void Memory::add_internals(const plan::InternalPlaces& places, std::int64_t offset) {
  for (const auto& [name, inside] : places.offsets) {
    tensors_[name] = Place::in_workspace(static_cast<std::size_t>(offset + inside));
  }
}

struct Memory::Find {
  const Memory& memory;
  std::int64_t turn = 0;

  Place operator()(const plan::TensorOperand& operand) const {
    const auto found = memory.tensors_.find(operand.name);
    ATTN_CHECK(found != memory.tensors_.end(), "a valid program must name known tensors");
    const std::size_t width = memory.widths_.find(operand.name)->second;
    const std::int64_t before = operand.offset + turn * operand.advance;
    return found->second.plus(static_cast<std::size_t>(before) * width);
  }
  Place operator()(const plan::ConstantOperand& operand) const {
    return Place::at(memory.scalars_.constant(operand));
  }
  Place operator()(const plan::ParamOperand& operand) const {
    void* place = memory.scalars_.param(operand.name);
    ATTN_CHECK(place != nullptr, "checked arguments must have every param");
    return Place::at(place);
  }
  Place operator()(const plan::CountingOperand&) const { return Place::at(memory.counting_); }
};

Place Memory::place_of(const plan::OperandSource& source, std::int64_t turn) const {
  return std::visit(Find{*this, turn}, source);
}

CudnnOperands::CudnnOperands(const plan::CudnnStep& step, const Memory& memory, std::int64_t turn) {
  for (const plan::Operand& operand : step.operands) {
    uids.push_back(operand.uid);
    places.push_back(memory.place_of(operand.source, turn));
  }
}

std::vector<void*> CudnnOperands::addresses(const Bases& bases) const {
  std::vector<void*> result;
  result.reserve(places.size());
  for (const Place& place : places) result.push_back(place.address(bases));
  return result;
}

KernelOperands::KernelOperands(const plan::DeriveStep& step, const Memory& memory,
                               std::int64_t turn) {
  for (const std::string& output : step.outputs) add(plan::TensorOperand{output}, memory);
  for (const plan::OperandSource& input : step.inputs) add(input, memory, turn);
}

KernelOperands::KernelOperands(void* output, const std::vector<plan::OperandSource>& inputs,
                               const Memory& memory) {
  operands.push_back({Place::at(output)});
  for (const plan::OperandSource& input : inputs) add(input, memory);
}

void KernelOperands::add(const plan::OperandSource& source, const Memory& memory,
                         std::int64_t turn) {
  operands.push_back(
      {memory.place_of(source, turn), std::holds_alternative<plan::ParamOperand>(source)});
}

KernelArguments::KernelArguments(const KernelOperands& operands, const Bases& bases) {
  tensors_.reserve(operands.operands.size());
  arguments_.reserve(operands.operands.size());
  for (const KernelOperands::Operand& operand : operands.operands) {
    void* address = operand.place.address(bases);
    if (!operand.by_value) {
      tensors_.push_back(address);
      address = &tensors_.back();
    }
    arguments_.push_back(address);
  }
}

Result<cuda::DeviceBuffer> counting_numbers(const plan::Program& program,
                                            const cuda::Device& device,
                                            const cuda::AllocatorPointer& allocator) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements per upload
  const auto count = static_cast<std::size_t>(plan::counting_elements(program));
  ATTN_ASSIGN(cuda::DeviceBuffer buffer,
              cuda::DeviceBuffer::allocate(device, count * sizeof(std::int32_t), allocator));
  std::vector<std::int32_t> numbers;
  for (std::size_t first = 0; first < count; first += kPiece) {
    numbers.resize(std::min(kPiece, count - first));
    std::iota(numbers.begin(), numbers.end(), static_cast<std::int32_t>(first));
    ATTN_RETURN_IF_ERROR(
        buffer.upload(std::as_bytes(std::span(numbers)), first * sizeof(std::int32_t)));
  }
  return buffer;
}

}  // namespace attn::execute
