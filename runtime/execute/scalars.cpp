#include "runtime/execute/scalars.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"
#include "runtime/io/element.h"

namespace attn::execute {
namespace {

std::size_t constants_in(const plan::Program& program) {
  std::size_t count = 0;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    for (const plan::Operand& operand : step->operands) {
      if (std::holds_alternative<plan::ConstantOperand>(operand.source)) ++count;
    }
  }
  for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
    for (const plan::Launch& launch : step->launches) {
      count += static_cast<std::size_t>(
          std::ranges::count_if(launch.arguments, [](const plan::KernelArgument& argument) {
            return std::holds_alternative<plan::ConstantOperand>(argument) ||
                   std::holds_alternative<plan::StrideArgument>(argument);
          }));
    }
  }
  return count;
}

}  // namespace

Scalars::Scalars(const plan::Program& program, const Arguments& arguments) {
  slots_.reserve(constants_in(program) + arguments.scalars().size());
  for (const Arguments::Scalar& scalar : arguments.scalars()) {
    params_[scalar.name] = add(scalar.dtype, scalar.value);
  }
}

void* Scalars::constant(const plan::ConstantOperand& constant) {
  void*& place = constants_[{constant.dtype, std::bit_cast<std::uint64_t>(constant.value)}];
  if (place == nullptr) place = add(constant.dtype, constant.value);
  return place;
}

void* Scalars::param(const std::string& name) const {
  const auto found = params_.find(name);
  return found == params_.end() ? nullptr : found->second;
}

void Scalars::set_param(const std::string& name, DType dtype, double value) {
  void* place = param(name);
  ATTN_CHECK(place != nullptr, "the param must be bound");
  io::store(dtype, value, static_cast<std::byte*>(place));
}

void* Scalars::add(DType dtype, double value) {
  ATTN_CHECK(slots_.size() < slots_.capacity(), "scalars must be counted before they are stored");
  slots_.emplace_back();
  io::store(dtype, value, slots_.back().bytes.data());
  return slots_.back().bytes.data();
}

}  // namespace attn::execute
