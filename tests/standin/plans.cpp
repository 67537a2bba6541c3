#include "tests/standin/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/graph/operands.h"
#include "runtime/io/element.h"
#include "tests/standin/work.h"
#include "tests/support/program_shape.h"

namespace attn::standin {
namespace {

using graph::Storage;
using graph::Uid;
using plan::KernelArgument;
using plan::OperandSource;
using plan::ParamOperand;
using plan::TensorOperand;
using Dims = std::vector<std::int64_t>;

const Dims kDims = {1, 2, 4, 8};
const Dims kMadeDims = {1, 1, 4, 8};
const Dims kOne = {1, 1, 1, 1};
constexpr std::int64_t kAlignment = 16;

std::int64_t bytes_of(const Dims& dims, const Dims& strides, DType dtype) {
  return (*last_offset(dims, strides) + 1) * static_cast<std::int64_t>(size_of(dtype));
}

plan::TensorInfo tensor(std::string name, plan::TensorRole role, DType dtype, const Dims& dims) {
  const bool internal = role == plan::TensorRole::internal;
  return {std::move(name),
          role,
          dtype,
          dims,
          row_major_strides(dims),
          internal ? plan::kInternalAlignment : kAlignment};
}

// y = ((x * constant) * p0 ..) + made ..
class StepMaker {
 public:
  plan::CudnnStep make(const std::string& from, const std::string& to, double constant, int params,
                       const std::vector<std::string>& made) {
    value_ = device(from, DType::bf16, kDims);
    apply(graph::PointwiseMode::mul, scalar(plan::ConstantOperand{DType::f32, constant}));
    for (int i = 0; i < params; ++i) {
      apply(graph::PointwiseMode::mul, scalar(ParamOperand{fmt::format("p{}", i)}));
    }
    for (const std::string& name : made) {
      apply(graph::PointwiseMode::add, device(name, DType::f32, kMadeDims));
    }
    graph::Tensor& last = step_.graph.tensors.back();
    last.dtype = DType::bf16;
    last.storage = Storage::device;
    step_.operands.push_back({last.uid, TensorOperand{to}});
    return std::move(step_);
  }

 private:
  Uid add(DType dtype, const Dims& dims, Storage storage) {
    step_.graph.tensors.push_back(
        {++last_uid_, "", dtype, dims, row_major_strides(dims), storage, kAlignment});
    return last_uid_;
  }
  Uid device(const std::string& name, DType dtype, const Dims& dims) {
    step_.operands.push_back({add(dtype, dims, Storage::device), TensorOperand{name}});
    return last_uid_;
  }
  Uid scalar(OperandSource source) {
    step_.operands.push_back({add(DType::f32, kOne, Storage::host_scalar), std::move(source)});
    return last_uid_;
  }
  void apply(graph::PointwiseMode mode, Uid other) {
    graph::Pointwise node;
    node.mode = mode;
    node.x = value_;
    node.b = other;
    node.y = value_ = add(DType::f32, kDims, Storage::virtual_value);
    step_.graph.nodes.emplace_back(node);
  }

  plan::CudnnStep step_;
  Uid last_uid_ = 0;
  Uid value_ = 0;
};

Role role_of(const graph::BackendGraph& graph, const graph::Tensor& tensor) {
  if (tensor.storage == Storage::host_scalar) return Role::scalar;
  return graph::is_written(graph, tensor.uid) ? Role::output : Role::input;
}

Work work_of(const plan::CudnnStep& step, std::uint64_t salt, std::int64_t workspace) {
  Work work{salt, workspace, {}};
  for (const plan::Operand& operand : step.operands) {
    const graph::Tensor& tensor = *step.graph.find(operand.uid);
    work.operands.push_back({role_of(step.graph, tensor), operand.uid,
                             bytes_of(tensor.dims, tensor.strides, tensor.dtype)});
  }
  return work;
}

const plan::TensorInfo& find_tensor(const plan::Program& program, const std::string& name) {
  for (const auto* tensors : {&program.tensors, &program.internals}) {
    for (const plan::TensorInfo& info : *tensors) {
      if (info.name == name) return info;
    }
  }
  check_failed(__FILE__, __LINE__, "name", "every operand is a tensor of the program");
}

DType dtype_of_param(const plan::Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.params, name, &plan::ParamInfo::name);
  ATTN_CHECK(found != program.params.end(), "every operand is a param of the program");
  return found->dtype;
}

// A kernel operand: a scalar, or a tensor from its offset in the last turn on.
Operand operand_of(const plan::Program& program, const KernelArgument& argument, Role role,
                   std::int64_t turns = 1) {
  const TensorOperand* named = plan::tensor_of(argument);
  if (named == nullptr) return {Role::scalar, 0, plan::bytes_of(argument)};
  const bool is_map = std::holds_alternative<plan::TensorMapArgument>(argument);
  const plan::TensorInfo& info = find_tensor(program, named->name);
  const std::int64_t before = named->offset + named->advance * (turns - 1);
  return {is_map ? Role::mapped : role, 0,
          bytes_of(info.dims, info.strides, info.dtype) -
              before * static_cast<std::int64_t>(size_of(info.dtype))};
}

// The first launch that has an output writes it; later ones read it.
Work work_of(const plan::Program& program, const plan::KernelStep& step, const plan::Launch& launch,
             std::uint64_t salt) {
  const auto is_named_before = [&](const std::string& name) {
    return std::any_of(step.launches.data(), &launch, [&name](const plan::Launch& before) {
      return plan::names({.outputs = {}, .zeroed = {}, .launches = {before}, .source = ""}, name);
    });
  };
  Work work{salt, 0, {}};
  for (const KernelArgument& argument : launch.arguments) {
    const TensorOperand* named = plan::tensor_of(argument);
    const bool writes = named != nullptr && !is_named_before(named->name) &&
                        std::ranges::find(step.outputs, named->name) != step.outputs.end();
    work.operands.push_back(
        operand_of(program, argument, writes ? Role::output : Role::input, step.turns));
  }
  return work;
}

// The kernel does not write the result word: the check passes.
std::string check_image(const plan::Program& program, const plan::IndexCheck& check) {
  Work work{0, 0, {{Role::untouched, 0, sizeof(std::uint64_t)}}};
  for (const KernelArgument& argument : plan::quick_launch(check).arguments) {
    work.operands.push_back(operand_of(program, argument, Role::untouched));
  }
  return to_json(Kernels{{plan::kQuickCheckKernel, work}, {plan::kExactCheckKernel, work}});
}

std::vector<OperandSource> table_and_params(const PlanOptions& options) {
  std::vector<OperandSource> inputs = {TensorOperand{"table"}};
  for (int i = 0; i < options.params; ++i) {
    inputs.emplace_back(ParamOperand{fmt::format("p{}", i)});
  }
  return inputs;
}

// Adds an internal tensor and the step that computes it.
void add_derived(plan::Program& program, const std::string& name, bool once,
                 std::vector<OperandSource> inputs) {
  program.internals.push_back(tensor(name, plan::TensorRole::internal, DType::f32, kMadeDims));
  program.steps.emplace_back(
      plan::DeriveStep{once, {name}, {"q_idx"}, std::move(inputs), fmt::format("// {}\n", name)});
}

void add_steps(plan::Program& program, const PlanOptions& options,
               const std::vector<std::string>& made) {
  std::string from = "q";
  for (int i = 0; i < options.steps; ++i) {
    const bool last = i + 1 == options.steps;
    const std::string to = last ? "o" : fmt::format("between{}", i);
    if (!last) {
      program.internals.push_back(tensor(to, plan::TensorRole::internal, DType::bf16, kDims));
    }
    program.steps.emplace_back(
        StepMaker().make(from, to, options.number + 0.5, options.params, made));
    from = to;
  }
}

plan::Program make_program(const PlanOptions& options) {
  plan::Program program;
  program.tensors = {tensor("q", plan::TensorRole::query, DType::bf16, kDims),
                     tensor("o", plan::TensorRole::output, DType::bf16, kDims)};
  if (options.derives_each || options.checks) {
    program.tensors.push_back(tensor("table", plan::TensorRole::captured, DType::f32, {16}));
  }
  for (int i = 0; i < options.params; ++i) {
    program.params.push_back({fmt::format("p{}", i), DType::f32});
  }
  std::vector<std::string> made;
  if (options.derives_once) add_derived(program, made.emplace_back("once"), true, {});
  if (options.derives_each) {
    add_derived(program, made.emplace_back("each"), false, table_and_params(options));
  }
  add_steps(program, options, made);
  if (options.checks) {
    program.check = plan::IndexCheck{{{"table[q_idx]", "an index is outside the tensor"}},
                                     table_and_params(options),
                                     16,
                                     {1, 2, 4, 8},
                                     "// check\n"};
  }
  return program;
}

// Host memory for the operands of a program.
class HostMemory {
 public:
  HostMemory(const plan::Program& program, const Bytes& inputs, const Params& params)
      : tensors_(inputs), iota_(static_cast<std::size_t>(plan::iota_elements(program))) {
    for (const auto* tensors : {&program.tensors, &program.internals}) {
      for (const plan::TensorInfo& info : *tensors) {
        tensors_[info.name].resize(
            static_cast<std::size_t>(bytes_of(info.dims, info.strides, info.dtype)));
        widths_[info.name] = static_cast<std::int64_t>(size_of(info.dtype));
        infos_[info.name] = info;
      }
    }
    for (const auto& [name, value] : params) {
      io::store(dtype_of_param(program, name), value, params_[name].data());
    }
    std::iota(iota_.begin(), iota_.end(), 0);
  }

  // Sets the loop iteration for the operands of the following steps.
  void set_turn(std::int64_t turn) { turn_ = turn; }

  void* operator()(const TensorOperand& operand) {
    const std::int64_t before = operand.offset + turn_ * operand.advance;
    return tensors_.at(operand.name).data() + before * widths_.at(operand.name);
  }
  void* operator()(const ParamOperand& operand) { return params_.at(operand.name).data(); }
  void* operator()(const plan::ConstantOperand& operand) {
    Value& value = constants_.emplace_back();
    io::store(operand.dtype, operand.value, value.data());
    return value.data();
  }
  void* operator()(const plan::IotaOperand&) { return iota_.data(); }
  void* operator()(const plan::TensorMapArgument& map) { return (*this)(map.tensor); }
  void* operator()(const plan::StrideArgument& of) {
    const std::int64_t stride = plan::value_of(of, infos_.at(of.tensor));
    return (*this)(plan::ConstantOperand{DType::i64, static_cast<double>(stride)});
  }

  void zero(const std::string& name) { std::ranges::fill(tensors_.at(name), std::byte{}); }

  const std::vector<std::byte>& tensor(const std::string& name) const { return tensors_.at(name); }

 private:
  Bytes tensors_;
  std::map<std::string, std::int64_t> widths_;  // element size in bytes
  std::map<std::string, plan::TensorInfo> infos_;
  std::int64_t turn_ = 0;
  std::map<std::string, Value> params_;
  std::deque<Value> constants_;
  std::vector<std::int32_t> iota_;
};

std::vector<void*> places_of(const plan::CudnnStep& step, HostMemory& memory) {
  std::vector<void*> places;
  for (const plan::Operand& operand : step.operands) {
    places.push_back(std::visit(memory, operand.source));
  }
  return places;
}

std::vector<void*> places_of(const plan::Launch& launch, HostMemory& memory) {
  std::vector<void*> places;
  for (const KernelArgument& argument : launch.arguments) {
    places.push_back(std::visit(memory, argument));
  }
  return places;
}

// The kernels of each step; empty for cuDNN's.
std::vector<Kernels> kernels_of(const plan::Plan& plan) {
  std::vector<Kernels> kernels;
  auto image = plan.kernels.begin();
  for (const plan::Step& step : plan.program.steps) {
    const bool cudnn = std::holds_alternative<plan::CudnnStep>(step);
    kernels.push_back(cudnn ? Kernels() : *parse_kernels(*image++));
  }
  return kernels;
}

std::vector<Work> cudnn_works_of(const plan::Plan& plan) {
  std::vector<Work> works;
  auto compiled = plan.compiled.begin();
  for (const plan::Step& step : plan.program.steps) {
    const bool cudnn = std::holds_alternative<plan::CudnnStep>(step);
    works.push_back(cudnn ? parse_plan((compiled++)->cudnn_plan)->work : Work());
  }
  return works;
}

void run_kernels(const plan::KernelStep& step, const Kernels& kernels, HostMemory& memory) {
  for (const std::string& name : step.zeroed) memory.zero(name);
  for (const plan::Launch& launch : step.launches) {
    run(kernels.at(launch.kernel), places_of(launch, memory));
  }
}

}  // namespace

plan::Plan make_plan(const PlanOptions& options) { return plan_of(make_program(options), options); }

plan::Plan plan_of(const plan::Program& program, const PlanOptions& options) {
  plan::Plan plan;
  plan.spec_name = fmt::format("standin{}", options.number);
  plan.target = {"standin", options.sm, fmt::format(R"({{"deviceVer": {}}})", options.sm * 10)};
  plan.cudnn_version = options.version;
  plan.program = program;
  plan.shape = attn::testing::shape_of(program);
  auto salt = static_cast<std::uint64_t>(options.number) << 8;
  for (const plan::Step& step : plan.program.steps) {
    if (const auto* cudnn = std::get_if<plan::CudnnStep>(&step)) {
      const Work work = work_of(*cudnn, ++salt, options.workspace);
      plan.compiled.push_back(
          {"A", 5, {}, options.workspace, to_json(PlanText{work, options.version, options.sm})});
      continue;
    }
    const plan::KernelStep launched = plan::launched(program, step);
    Kernels kernels;
    for (const plan::Launch& launch : launched.launches) {
      kernels.emplace(launch.kernel, work_of(program, launched, launch, ++salt));
    }
    plan.kernels.push_back(to_json(kernels));
  }
  if (plan.program.check) {
    plan.kernels.push_back(check_image(plan.program, *plan.program.check));
  }
  plan.signature = plan::signature_of(plan);
  return plan;
}

Bytes expected_outputs(const plan::Plan& plan, const Bytes& inputs, const Params& params) {
  HostMemory memory(plan.program, inputs, params);
  const std::vector<Work> works = cudnn_works_of(plan);
  const std::vector<Kernels> kernels = kernels_of(plan);
  for (const plan::Run& each : plan::runs_of(plan.program)) {
    memory.set_turn(each.turn);
    const plan::Step& step = plan.program.steps[each.step];
    if (const auto* cudnn = std::get_if<plan::CudnnStep>(&step)) {
      run(works[each.step], places_of(*cudnn, memory));
    } else {
      run_kernels(plan::launched(plan.program, step), kernels[each.step], memory);
    }
  }
  Bytes outputs;
  for (const plan::TensorInfo& info : plan.program.tensors) {
    if (info.is_output()) outputs[info.name] = memory.tensor(info.name);
  }
  return outputs;
}

}  // namespace attn::standin
