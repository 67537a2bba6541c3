#include "tests/host/machine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/io/element.h"
#include "runtime/io/layout.h"
#include "tests/host/graph.h"

namespace attn::host {
namespace {

constexpr std::byte kPoison{0xff};  // every float is a NaN

std::vector<std::byte> counted(std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  for (std::int32_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof i, &i, sizeof i);
  }
  return bytes;
}

}  // namespace

Machine::Machine(const plan::Program& program, const Kernels& kernels, gpu::Order order)
    : program_(program), kernels_(kernels), order_(order) {
  for (const auto* tensors : {&program.tensors, &program.internals}) {
    for (const plan::TensorInfo& info : *tensors) {
      const auto elements =
          static_cast<std::size_t>(*io::storage_elements(info.dims, info.strides));
      memory_[info.name].assign(elements * size_of(info.dtype), kPoison);
      infos_[info.name] = &info;
    }
  }
}

Status Machine::run() {
  ATTN_RETURN_IF_ERROR(plan::validate(program_));
  for (const plan::Run& each : plan::runs_of(program_)) {
    ATTN_RETURN_IF_ERROR(std::visit([&](const auto& step) { return run(step, each.turn); },
                                    program_.steps[each.step]));
  }
  return {};
}

std::byte* Machine::address(const plan::TensorOperand& operand, std::int64_t turn) {
  return memory(operand.name).data() +
         static_cast<std::size_t>(operand.offset + turn * operand.advance) *
             size_of(infos_.at(operand.name)->dtype);
}

Status Machine::run(const plan::CudnnStep& step, std::int64_t turn) {
  std::map<graph::Uid, Operand> operands;
  std::vector<std::vector<std::byte>> counts;
  counts.reserve(step.operands.size());
  for (const plan::Operand& operand : step.operands) {
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&operand.source)) {
      std::byte* begin = address(*tensor, turn);
      std::vector<std::byte>& all = memory(tensor->name);
      operands[operand.uid] = std::span(begin, all.data() + all.size());
    } else if (const auto* count = std::get_if<plan::IotaOperand>(&operand.source)) {
      operands[operand.uid] = std::span(counts.emplace_back(counted(count->count)));
    } else if (const auto* constant = std::get_if<plan::ConstantOperand>(&operand.source)) {
      operands[operand.uid] = constant->value;
    } else {
      operands[operand.uid] = param(std::get<plan::ParamOperand>(operand.source).name);
    }
  }
  return host::run(step.graph, operands);
}

Status Machine::run(const plan::KernelStep& step, std::int64_t turn) {
  for (const std::string& name : step.zeroed) std::ranges::fill(memory(name), std::byte{0});
  const bool skips = step.schedule && is_made_before_;
  for (std::size_t i = skips ? 1 : 0; i < step.launches.size(); ++i) {
    ATTN_RETURN_IF_ERROR(run(step, step.launches[i], turn));
  }
  return {};
}

ScheduleMemory Machine::schedule_memory(const plan::ScheduleOptions& options) const {
  const plan::Schedule& of = *plan::scheduled_step(program_)->schedule;
  ScheduleMemory schedule;
  for (const std::string& name : {of.tensor, of.options, of.parts}) {
    schedule[name].assign(memory_.at(name).size(), kPoison);
  }
  std::ranges::fill(schedule[of.options], std::byte{0});
  std::memcpy(schedule[of.options].data(), &options, sizeof options);
  return schedule;
}

void Machine::exchange(ScheduleMemory& schedule, const std::string& name) {
  std::swap(memory(name), schedule.at(name));
}

Status Machine::make_schedule(ScheduleMemory& schedule) {
  const plan::KernelStep& step = *plan::scheduled_step(program_);
  const auto exchange_all = [&] {
    for (const auto& [name, bytes] : schedule) exchange(schedule, name);
  };
  exchange_all();
  Status made = run(step, step.launches[0], 0);
  exchange_all();
  return made;
}

Status Machine::run(ScheduleMemory& schedule) {
  const plan::Schedule& of = *plan::scheduled_step(program_)->schedule;
  const auto exchange_used = [&] {
    for (const std::string& name : {of.tensor, of.parts}) exchange(schedule, name);
  };
  exchange_used();
  is_made_before_ = true;
  Status done = run();
  is_made_before_ = false;
  exchange_used();
  return done;
}

gpu::TensorMap Machine::map_of(const plan::TensorMapArgument& of, std::int64_t turn) {
  gpu::TensorMap map;
  const plan::TensorInfo& tensor = *infos_.at(of.tensor.name);
  const plan::TensorMapArgument argument = plan::resolved(of, tensor);
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
  map.base = reinterpret_cast<unsigned char*>(address(argument.tensor, turn));
  map.rank = static_cast<std::uint8_t>(argument.dims.size());
  map.element_bytes = static_cast<std::uint8_t>(element);
  map.swizzle = static_cast<std::uint8_t>(argument.swizzle);
  for (std::size_t i = 0; i < argument.dims.size(); ++i) {
    map.dims[i] = static_cast<std::uint32_t>(argument.dims[i]);
    map.box[i] = static_cast<std::uint16_t>(argument.box[i]);
    if (i > 0) map.strides[i - 1] = argument.strides[i - 1] * element;
  }
  return map;
}

Status Machine::run(const plan::KernelStep& step, const plan::Launch& launch, std::int64_t turn) {
  std::vector<std::array<std::byte, plan::kTensorMapBytes>> values(launch.arguments.size());
  std::vector<void*> arguments;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* const value = values[i].data();
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&launch.arguments[i])) {
      std::byte* const pointer = address(*tensor, turn);
      std::memcpy(value, &pointer, sizeof pointer);
    } else if (const auto* map = std::get_if<plan::TensorMapArgument>(&launch.arguments[i])) {
      const gpu::TensorMap made = map_of(*map, turn);
      std::memcpy(value, &made, sizeof made);
    } else if (const auto* of = std::get_if<plan::StrideArgument>(&launch.arguments[i])) {
      const std::int64_t stride = plan::value_of(*of, *infos_.at(of->tensor));
      std::memcpy(value, &stride, sizeof stride);
    } else if (const auto* constant = std::get_if<plan::ConstantOperand>(&launch.arguments[i])) {
      io::store(constant->dtype, constant->value, value);
    } else {
      store_param(std::get<plan::ParamOperand>(launch.arguments[i]).name, value);
    }
    arguments.push_back(value);
  }
  return kernels_.launch(step, launch, arguments.data(), order_, at_once_);
}

void Machine::store_param(const std::string& name, std::byte* value) const {
  const auto info = std::ranges::find(program_.params, name, &plan::ParamInfo::name);
  io::store(info->dtype, param(name), value);
}

Status Machine::run(const plan::DeriveStep& step, std::int64_t turn) {
  // Pointers and params, each with the largest alignment.
  std::vector<std::uint64_t> values;
  const auto add = [&values](const void* bytes, std::size_t size) {
    std::memcpy(&values.emplace_back(), bytes, size);
  };
  const auto add_address = [&](const plan::TensorOperand& operand) {
    std::byte* const pointer = address(operand, turn);
    add(&pointer, sizeof pointer);
  };
  for (const std::string& output : step.outputs) add_address({output});
  for (const plan::OperandSource& input : step.inputs) {
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&input)) {
      add_address(*tensor);
      continue;
    }
    std::byte bytes[sizeof(std::int64_t)] = {};
    store_param(std::get<plan::ParamOperand>(input).name, bytes);
    add(bytes, sizeof bytes);
  }
  std::vector<void*> arguments;
  for (std::uint64_t& value : values) arguments.push_back(&value);
  kernels_.launch(step, plan::derived_elements(program_, step), arguments.data());
  return {};
}

}  // namespace attn::host
