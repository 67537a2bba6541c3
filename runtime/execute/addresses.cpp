#include "runtime/execute/addresses.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <vector>

#include "runtime/base/check.h"

namespace attn::execute {

Place Place::plus(std::size_t bytes) const {
  Place place = *this;
  place.inside += bytes;
  return place;
}

Memory::Memory(const plan::Program& program, Scalars& scalars, void* iota)
    : scalars_(scalars), iota_(iota) {
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    tensors_[program.tensors[i].name] = Place::of_tensor(i);
  }
  for (const auto* tensors : {&program.tensors, &program.internals}) {
    for (const plan::TensorInfo& tensor : *tensors) infos_[tensor.name] = &tensor;
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

void Memory::set_schedule(const plan::Schedule& schedule) {
  for (const auto& [name, tensor] : {std::pair(&schedule.tensor, &ScheduleMemory::tensor),
                                     std::pair(&schedule.options, &ScheduleMemory::options),
                                     std::pair(&schedule.parts, &ScheduleMemory::parts)}) {
    tensors_.at(*name).scheduled = tensor;
  }
}

void Memory::set_bound(std::span<const plan::TensorInfo> tensors) {
  for (const plan::TensorInfo& tensor : tensors) infos_[tensor.name] = &tensor;
}

struct Memory::Find {
  const Memory& memory;
  std::int64_t turn = 0;

  Place operator()(const plan::TensorOperand& operand) const {
    const auto found = memory.tensors_.find(operand.name);
    ATTN_CHECK(found != memory.tensors_.end(), "a valid program must name known tensors");
    const std::size_t width = size_of(memory.tensor(operand.name).dtype);
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
  Place operator()(const plan::IotaOperand&) const { return Place::at(memory.iota_); }
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

namespace {

struct MakeOperand {
  const Memory& memory;
  std::int64_t turn = 0;

  LaunchOperands::Operand operator()(const plan::TensorOperand& tensor) const {
    return {.place = memory.place_of(tensor, turn)};
  }
  LaunchOperands::Operand operator()(const plan::TensorMapArgument& map) const {
    const plan::TensorInfo& tensor = memory.tensor(map.tensor.name);
    return {memory.place_of(map.tensor, turn), false,
            std::make_shared<const plan::TensorMapArgument>(plan::resolved(map, tensor)),
            tensor.dtype};
  }
  // A launch only reads the value.
  LaunchOperands::Operand operator()(const plan::StrideArgument& of) const {
    const plan::TensorInfo& tensor = memory.tensor(of.tensor);
    if (of.in_steps) {
      auto value = std::make_shared<std::int64_t>(plan::value_of(of, tensor));
      return {.place = Place::at(value.get()), .by_value = true, .number = value};
    }
    const std::int64_t& stride = tensor.strides[static_cast<std::size_t>(of.axis)];
    return {.place = Place::at(const_cast<std::int64_t*>(&stride)), .by_value = true};
  }
  LaunchOperands::Operand operator()(const auto& scalar) const {
    return {.place = memory.place_of(scalar), .by_value = true};
  }
};

// The launch of a step that is not left out.
std::size_t first_of(const KernelOperands& operands, const Bases& bases) {
  return operands.makes_schedule && bases.schedule.tensor != nullptr ? 1 : 0;
}

std::size_t bytes_of(const plan::TensorInfo& dense) {
  const auto elements =
      std::accumulate(dense.dims.begin(), dense.dims.end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(elements) * size_of(dense.dtype);
}

}  // namespace

LaunchOperands::LaunchOperands(const plan::Launch& launch, const Memory& memory, std::int64_t turn,
                               void* before) {
  if (before != nullptr) operands.push_back({.place = Place::at(before)});
  for (const plan::KernelArgument& argument : launch.arguments) {
    const std::size_t index = operands.size();
    const Operand& made = operands.emplace_back(std::visit(MakeOperand{memory, turn}, argument));
    if (made.map != nullptr) {
      maps.push_back(index);
    } else if (made.place.moves()) {
      moving.push_back(index);
    }
  }
}

KeptMaps::KeptMaps(std::size_t kept)
    : addresses_(2 * std::bit_ceil(kept)), maps_(addresses_.size()) {}

Status KeptMaps::prepare(const LaunchOperands::Operand& operand, void* address,
                         const cuda::Device& device) {
  constexpr std::uint64_t kMixed = 0x9e3779b97f4a7c15;  // the high bits depend on all others
  const auto hash = (reinterpret_cast<std::uintptr_t>(address) * kMixed) >> 32;
  const std::size_t first = 2 * (hash % (addresses_.size() / 2));
  for (const std::size_t at : {first, first + 1}) {
    prepared_ = at;
    if (address != nullptr && addresses_[at] == address) return {};
  }
  prepared_ = addresses_[first] == nullptr ? first : first + (turn_++ % 2);
  if (prepared_ == taken_) prepared_ ^= 1;
  addresses_[prepared_] = nullptr;
  const plan::TensorMapArgument& map = *operand.map;
  ATTN_ASSIGN(maps_[prepared_], cuda::encode_tensor_map(device, address,
                                                        {operand.dtype, map.dims, map.strides,
                                                         map.box, map.swizzle, map.promotion}));
  addresses_[prepared_] = address;
  return {};
}

LaunchArguments::LaunchArguments(const LaunchOperands& operands, std::size_t kept)
    : addresses_(operands.operands.size()), maps_(operands.maps.size(), KeptMaps(kept)) {
  arguments_.reserve(addresses_.size());
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const LaunchOperands::Operand& operand = operands.operands[i];
    if (!operand.place.moves()) addresses_[i] = operand.place.fixed_address();
    arguments_.push_back(operand.by_value ? addresses_[i] : &addresses_[i]);
  }
}

Result<LaunchArguments> LaunchArguments::make(const LaunchOperands& operands, const Bases& bases,
                                              const cuda::Device& device) {
  LaunchArguments made(operands);
  ATTN_RETURN_IF_ERROR(made.prepare(operands, bases, device));
  made.take(operands, bases);
  return made;
}

Status LaunchArguments::prepare(const LaunchOperands& operands, const Bases& bases,
                                const cuda::Device& device) {
  for (std::size_t i = 0; i < operands.maps.size(); ++i) {
    const LaunchOperands::Operand& operand = operands.operands[operands.maps[i]];
    ATTN_RETURN_IF_ERROR(maps_[i].prepare(operand, operand.place.address(bases), device));
  }
  return {};
}

void LaunchArguments::take(const LaunchOperands& operands, const Bases& bases) {
  for (const std::size_t i : operands.moving) {
    addresses_[i] = operands.operands[i].place.address(bases);
  }
  for (std::size_t i = 0; i < operands.maps.size(); ++i) {
    arguments_[operands.maps[i]] = maps_[i].take();
  }
}

KernelOperands::KernelOperands(const plan::KernelStep& step, const Memory& memory,
                               std::int64_t turn) {
  makes_schedule = step.schedule.has_value();
  for (const std::string& name : step.zeroed) {
    const bool is_later =
        std::any_of(step.launches.begin() + 1, step.launches.end(),
                    [&name](const plan::Launch& launch) { return plan::names(launch, name); });
    zeroed.push_back(
        {memory.place_of(plan::TensorOperand{name}), bytes_of(memory.tensor(name)), !is_later});
  }
  for (const plan::Launch& launch : step.launches) launches.emplace_back(launch, memory, turn);
}

KernelArguments::KernelArguments(const KernelOperands& operands, std::size_t kept)
    : zeroed(operands.zeroed.size()) {
  for (const LaunchOperands& launch : operands.launches) launches.emplace_back(launch, kept);
}

Result<KernelArguments> KernelArguments::make(const KernelOperands& operands, const Bases& bases,
                                              const cuda::Device& device) {
  KernelArguments made(operands);
  ATTN_RETURN_IF_ERROR(made.prepare(operands, bases, device));
  made.take(operands, bases);
  return made;
}

Status KernelArguments::prepare(const KernelOperands& operands, const Bases& bases,
                                const cuda::Device& device) {
  for (std::size_t i = first_of(operands, bases); i < launches.size(); ++i) {
    ATTN_RETURN_IF_ERROR(launches[i].prepare(operands.launches[i], bases, device));
  }
  return {};
}

void KernelArguments::take(const KernelOperands& operands, const Bases& bases) {
  first = first_of(operands, bases);
  for (std::size_t i = 0; i < zeroed.size(); ++i) {
    const KernelOperands::Zeroed& each = operands.zeroed[i];
    zeroed[i] = first > 0 && each.is_for_first ? nullptr : each.place.address(bases);
  }
  for (std::size_t i = first; i < launches.size(); ++i)
    launches[i].take(operands.launches[i], bases);
}

Result<cuda::DeviceBuffer> make_iota(const plan::Program& program, const cuda::Device& device,
                                     const cuda::AllocatorPointer& allocator) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements per upload
  const auto count = static_cast<std::size_t>(plan::iota_elements(program));
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
