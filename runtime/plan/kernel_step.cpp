#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "runtime/graph/extent.h"
#include "runtime/plan/program.h"

namespace attn::plan {
namespace {

constexpr std::int64_t kBlock = 256;  // threads of an element-wise kernel

struct Bytes {
  std::int64_t operator()(const TensorOperand&) const { return sizeof(void*); }
  std::int64_t operator()(const ParamOperand&) const { return 4; }
  std::int64_t operator()(const ConstantOperand&) const { return 4; }
  std::int64_t operator()(const TensorMapArgument&) const { return kTensorMapBytes; }
  std::int64_t operator()(const StrideArgument&) const { return sizeof(std::int64_t); }
};

// The largest number if it does not fit.
std::int64_t product(std::int64_t x, std::int64_t y) {
  std::int64_t result = 0;
  const bool fits = !__builtin_mul_overflow(x, y, &result);
  return fits ? result : std::numeric_limits<std::int64_t>::max();
}

KernelArgument argument_of(const OperandSource& source) {
  if (const auto* param = std::get_if<ParamOperand>(&source)) return *param;
  return std::get<TensorOperand>(source);  // validate allows nothing else
}

Launch element_wise(const char* kernel, std::int64_t threads) {
  return {
      .kernel = kernel, .grid = {(threads + kBlock - 1) / kBlock, 1, 1}, .block = {kBlock, 1, 1}};
}

Launch check_launch(const IndexCheck& check, const char* kernel, std::int64_t threads) {
  Launch launch = element_wise(kernel, threads);
  for (const OperandSource& input : check.inputs) launch.arguments.push_back(argument_of(input));
  return launch;
}

KernelStep launch_of(const Program& program, const DeriveStep& step) {
  Launch launch = element_wise(kDeriveKernel, derived_elements(program, step));
  for (const std::string& output : step.outputs) {
    launch.arguments.emplace_back(TensorOperand{output});
  }
  for (const OperandSource& input : step.inputs) launch.arguments.push_back(argument_of(input));
  return {.outputs = step.outputs,
          .zeroed = {},
          .launches = {std::move(launch)},
          .source = step.source,
          .turns = step.turns};
}

}  // namespace

std::int64_t bytes_of(const KernelArgument& argument) { return std::visit(Bytes{}, argument); }

const TensorOperand* tensor_of(const KernelArgument& argument) {
  if (const auto* map = std::get_if<TensorMapArgument>(&argument)) return &map->tensor;
  return std::get_if<TensorOperand>(&argument);
}

TensorMapArgument resolved(const TensorMapArgument& map, const TensorInfo& tensor) {
  TensorMapArgument result = map;
  result.axes.clear();
  for (std::size_t i = 0; i < map.axes.size(); ++i) {
    if (map.axes[i] == TensorMapArgument::kNoAxis) continue;
    if (map.axes[i] == TensorMapArgument::kPagesAndHeads) {
      result.strides[i] = common_step(tensor);
      result.dims[i + 1] = steps_of_pages(tensor).value_or(0);
      continue;
    }
    const auto axis = static_cast<std::size_t>(map.axes[i]);
    result.strides[i] = product(map.strides[i], tensor.strides[axis]);
    if (axis == 0) result.dims[i + 1] = tensor.dims[0];
  }
  if (result.packed && result.strides.size() > 1) {
    const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
    result.strides.back() = stride_back(*(result.strides.end() - 2), width);
  }
  return result;
}

std::int64_t common_step(const TensorInfo& tensor) {
  std::int64_t step = 0;
  for (const std::size_t axis : {0, 1}) {
    if (tensor.dims[axis] > 1) step = std::gcd(step, tensor.strides[axis]);
  }
  constexpr std::int64_t kBytes = 16;  // any aligned step will do
  return step > 0 ? step : kBytes / static_cast<std::int64_t>(size_of(tensor.dtype));
}

std::optional<std::int64_t> steps_of_pages(const TensorInfo& tensor) {
  const auto last =
      last_offset(std::span(tensor.dims).first(2), std::span(tensor.strides).first(2));
  if (!last) return std::nullopt;
  return *last / common_step(tensor) + 1;
}

std::int64_t value_of(const StrideArgument& stride, const TensorInfo& tensor) {
  const auto axis = static_cast<std::size_t>(stride.axis);
  if (!stride.in_steps) return tensor.strides[axis];
  return tensor.dims[axis] > 1 ? tensor.strides[axis] / common_step(tensor) : 0;
}

bool takes_steps(const Program& program, const std::string& tensor) {
  for (const KernelStep* step : steps_of<KernelStep>(program)) {
    for (const Launch& launch : step->launches) {
      for (const KernelArgument& argument : launch.arguments) {
        const auto* of = std::get_if<StrideArgument>(&argument);
        if (of != nullptr && of->in_steps && of->tensor == tensor) return true;
      }
    }
  }
  return false;
}

std::int64_t stride_back(std::int64_t row, std::int64_t width) {
  return TensorMapArgument::kPackedBytes / width - row;
}

bool names(const Launch& launch, const std::string& tensor) {
  return std::ranges::any_of(launch.arguments, [&tensor](const KernelArgument& argument) {
    const TensorOperand* operand = tensor_of(argument);
    return operand != nullptr && operand->name == tensor;
  });
}

bool names(const KernelStep& step, const std::string& tensor) {
  return std::ranges::any_of(step.launches,
                             [&tensor](const Launch& launch) { return names(launch, tensor); });
}

const KernelStep* scheduled_step(const Program& program) {
  const std::vector<const KernelStep*> steps = steps_of<KernelStep>(program);
  const auto found = std::ranges::find_if(
      steps, [](const KernelStep* step) { return step->schedule.has_value(); });
  return found == steps.end() ? nullptr : *found;
}

KernelStep launched(const Program& program, const Step& step) {
  const auto* derive = std::get_if<DeriveStep>(&step);
  return derive == nullptr ? std::get<KernelStep>(step) : launch_of(program, *derive);
}

Launch quick_launch(const IndexCheck& check) {
  return check_launch(check, kQuickCheckKernel, check.quick);
}

Launch exact_launch(const IndexCheck& check) {
  const auto scores = std::accumulate(check.scores.begin(), check.scores.end(), std::int64_t{1},
                                      std::multiplies<>());
  return check_launch(check, kExactCheckKernel, scores);
}

std::vector<KernelSource> sources_of(const Program& program) {
  std::vector<KernelSource> sources;
  for (const Step& step : program.steps) {
    if (const auto* derive = std::get_if<DeriveStep>(&step)) sources.push_back({&derive->source});
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      sources.push_back({&kernel->source, true});
    }
  }
  if (program.check) sources.push_back({&program.check->source});
  return sources;
}

}  // namespace attn::plan
