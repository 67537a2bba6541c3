#include "runtime/plan/step_tensors.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::plan {
namespace {

using Change = std::function<void(TensorOperand&)>;

void change_name(std::string& name, const Change& change) {
  TensorOperand operand{name};
  change(operand);
  ATTN_CHECK(operand.offset == 0, "kernels write whole tensors");
  name = operand.name;
}

void change_names(std::vector<std::string>& names, const Change& change) {
  for (std::string& name : names) change_name(name, change);
}

void change_source(OperandSource& source, const Change& change) {
  if (auto* tensor = std::get_if<TensorOperand>(&source)) change(*tensor);
}

void change_argument(KernelArgument& argument, const Change& change) {
  if (auto* tensor = std::get_if<TensorOperand>(&argument)) change(*tensor);
  if (auto* map = std::get_if<TensorMapArgument>(&argument)) change(map->tensor);
  if (auto* stride = std::get_if<StrideArgument>(&argument)) {
    TensorOperand tensor{stride->tensor};
    change(tensor);
    stride->tensor = tensor.name;
  }
}

struct Changer {
  const Change& change;

  void operator()(CudnnStep& step) const {
    for (Operand& operand : step.operands) change_source(operand.source, change);
  }
  void operator()(DeriveStep& step) const {
    change_names(step.outputs, change);
    for (OperandSource& input : step.inputs) change_source(input, change);
  }
  void operator()(KernelStep& step) const {
    change_names(step.outputs, change);
    change_names(step.zeroed, change);
    for (Launch& launch : step.launches) {
      for (KernelArgument& argument : launch.arguments) change_argument(argument, change);
    }
    if (!step.schedule) return;
    for (std::string* name :
         {&step.schedule->tensor, &step.schedule->options, &step.schedule->parts}) {
      change_name(*name, change);
    }
  }
};

void add_arguments(const Launch& launch, std::set<std::string>& names) {
  for (const KernelArgument& argument : launch.arguments) {
    if (const TensorOperand* tensor = tensor_of(argument)) names.insert(tensor->name);
    if (const auto* param = std::get_if<ParamOperand>(&argument)) names.insert(param->name);
  }
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

struct Uses {
  const std::string& tensor;

  bool is(const OperandSource& source) const {
    const auto* named = std::get_if<TensorOperand>(&source);
    return named != nullptr && named->name == tensor;
  }
  bool operator()(const CudnnStep& step) const {
    return std::ranges::any_of(step.operands,
                               [this](const Operand& operand) { return is(operand.source); });
  }
  bool operator()(const DeriveStep& step) const {
    return contains(step.outputs, tensor) ||
           std::ranges::any_of(step.inputs,
                               [this](const OperandSource& source) { return is(source); });
  }
  bool operator()(const KernelStep& step) const {
    return contains(step.outputs, tensor) || contains(step.zeroed, tensor) || names(step, tensor);
  }
};

}  // namespace

const std::string* name_of(const OperandSource& source) {
  if (const auto* tensor = std::get_if<TensorOperand>(&source)) return &tensor->name;
  const auto* param = std::get_if<ParamOperand>(&source);
  return param == nullptr ? nullptr : &param->name;
}

std::set<std::string> names_used(std::span<const Step> steps) {
  std::set<std::string> names;
  const auto add = [&names](const OperandSource& source) {
    if (const std::string* name = name_of(source)) names.insert(*name);
  };
  for (const Step& step : steps) {
    if (const auto* derive = std::get_if<DeriveStep>(&step))
      std::ranges::for_each(derive->inputs, add);
    if (const auto* cudnn = std::get_if<CudnnStep>(&step))
      std::ranges::for_each(cudnn->operands, add, &Operand::source);
    if (const auto* kernels = std::get_if<KernelStep>(&step)) {
      for (const Launch& launch : kernels->launches) add_arguments(launch, names);
    }
  }
  return names;
}

bool uses(const Step& step, const std::string& tensor) { return std::visit(Uses{tensor}, step); }

void change_tensors(Step& step, const Change& change) { std::visit(Changer{change}, step); }

}  // namespace attn::plan
