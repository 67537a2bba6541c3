#include "compiler/codegen/key_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/key_sum_parts.h"
#include "compiler/codegen/sources.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::KeySum;
using ir::Op;

constexpr std::int64_t kThreads = 256;  // kernels::KeySums::kThreads

std::string onward_name(const KeySum& sum) { return sum.tensor.name + ".onward"; }

// The text of a kernel in which each row of each sum has a block of threads.
class RowKernel {
 public:
  explicit RowKernel(const char* name) : name_(name) {}

  void write(const std::string& tensor, DType dtype, const std::string& parameter) {
    step_.outputs.push_back(tensor);
    add(plan::TensorOperand{tensor}, fmt::format("{}* {}", element_type(dtype), parameter));
  }
  void read(const std::string& tensor, DType dtype, const std::string& parameter) {
    add(plan::TensorOperand{tensor}, fmt::format("const {}* {}", element_type(dtype), parameter));
  }
  void read(const KernelInputs& inputs) {
    for (std::size_t i = 0; i < inputs.operands.size(); ++i) {
      const auto* param = std::get_if<plan::ParamOperand>(&inputs.operands[i]);
      add(param != nullptr
              ? plan::KernelArgument(*param)
              : plan::KernelArgument(std::get<plan::TensorOperand>(inputs.operands[i])),
          inputs.parameters[i]);
    }
  }

  // A sum along each row of `keys`: of the value in the lambda's text, of which the other does
  // something.
  void add_rows(std::int64_t rows, std::int64_t keys, const std::string& value,
                const std::string& put) {
    body_ += fmt::format(
        "  if (row < {0}) {{\n    sums.run({1}, [&](long long n) -> double {{\n{2}    }}, "
        "[&](long long n, double sum) {{\n{3}    }});\n    return;\n  }}\n  row -= {0};\n",
        rows, keys, value, put);
    rows_ += rows;
  }

  plan::KernelStep finish() && {
    launch_.kernel = name_;
    launch_.grid = {rows_, 1, 1};
    launch_.block = {kThreads, 1, 1};
    step_.source = fmt::format(
        "{}extern \"C\" __global__ void {}({}) {{\n  __shared__ kernels::KeySums::Shared shared;\n"
        "  const kernels::KeySums sums{{shared}};\n  long long row = blockIdx.x;\n{}}}\n",
        include_text("key_sums.cuh"), name_, fmt::join(parameters_, ", "), body_);
    step_.launches.push_back(std::move(launch_));
    return std::move(step_);
  }

 private:
  void add(plan::KernelArgument argument, std::string parameter) {
    launch_.arguments.push_back(std::move(argument));
    parameters_.push_back(std::move(parameter));
  }

  const char* name_;
  plan::KernelStep step_;
  plan::Launch launch_;
  std::vector<std::string> parameters_;
  std::string body_;
  std::int64_t rows_ = 0;
};

// The first launch of gradients, and what becomes of tensors that it does not finish.
class GradientsMaker {
 public:
  GradientsMaker(const ir::Attention& attention, const SumGradientTensors& tensors)
      : attention_(attention), tensors_(tensors), kernel_(kKeySumGradientsKernel) {
    for (const KeySum& sum : tensors.sums) {
      for (const std::string& name : tensors.learned) add_paths(sum, name);
    }
  }

  MadeSteps run() && {
    std::vector<ExprId> read;
    for (const std::string& name : tensors_.learned) {
      if (is_direct(name)) write(name);
    }
    for (const KeySum& sum : tensors_.sums) {
      const std::string& name = sum.tensor.name;
      if (goes_onward(sum)) {
        made_.internals.push_back(
            plan::internal_tensor(onward_name(sum), DType::f32, SumShape(attention_, sum).dims()));
        kernel_.write(onward_name(sum), DType::f32, "o_" + name);
      }
    }
    for (const KeySum& sum : tensors_.sums) {
      const bool goes_on =
          std::ranges::any_of(paths_, [&](const SumPath& path) { return path.sum == sum; });
      if (!goes_on) continue;
      kernel_.read(gradient::gradient_name(sum.tensor.name), DType::f32, "g_" + sum.tensor.name);
      add_rows(sum, read);
    }
    kernel_.read(inputs_of(attention_, read));
    if (!paths_.empty()) made_.steps.emplace_back(std::move(kernel_).finish());
    for (const std::string& name : tensors_.learned) {
      if (!is_direct(name)) add_parts(name);
    }
    return std::move(made_);
  }

 private:
  void add_paths(const KeySum& sum, const std::string& name) {
    const ExprId roots[] = {sum.value};
    for (const ExprId load : ir::reachable(attention_.dag, roots)) {
      const ir::Node& node = attention_.dag[load];
      if (!node.is(Op::load_) || attention_.dag.symbol_of(load) != name) continue;
      const ExprId local = gradient::derivative(attention_.dag, sum.value, load);
      const bool is_nothing =
          attention_.dag[local].is(Op::const_real_) && attention_.dag.real_of(local) == 0;
      if (!is_nothing) paths_.push_back({sum, load, local, onward_name(sum)});
    }
  }

  const std::string& tensor_of(const SumPath& path) const {
    return attention_.dag.symbol_of(path.load);
  }
  std::vector<SumPath> paths_to(const std::string& name) const {
    std::vector<SumPath> found;
    std::ranges::copy_if(paths_, std::back_inserter(found),
                         [&](const SumPath& path) { return tensor_of(path) == name; });
    return found;
  }

  // Whether each element of the tensor is read once, by one key of one row of one sum.
  bool is_direct(const std::string& name) const {
    const std::vector<SumPath> paths = paths_to(name);
    return paths.size() == 1 && reads_each_once(attention_, paths.front());
  }
  bool goes_onward(const KeySum& sum) const {
    return std::ranges::any_of(paths_, [&](const SumPath& path) {
      return path.sum == sum && !is_direct(tensor_of(path));
    });
  }

  void write(const std::string& name) {
    const DType dtype = attention_.find_tensor(name)->dtype;
    kernel_.write(gradient::gradient_name(name), dtype, "d_" + name);
    if (const std::string rest = tensors_.rest(name); !rest.empty())
      kernel_.read(rest, dtype, "rest_" + name);
  }

  void add_rows(const KeySum& sum, std::vector<ExprId>& read) {
    const SumShape shape(attention_, sum);
    const std::string last = fmt::format("row * {0} + ({0} - 1 - n)", shape.keys());
    ExpressionWriter writer(attention_);
    writer.begin(shape.axes(), shape.dims());
    std::string stores;
    if (goes_onward(sum)) stores += fmt::format("      o_{}[i] = (float)sum;\n", sum.tensor.name);
    for (const SumPath& path : paths_) {
      if (path.sum != sum || !is_direct(tensor_of(path))) continue;
      stores += store(path, writer);
      read.push_back(path.local);
    }
    kernel_.add_rows(
        shape.rows(), shape.keys(), fmt::format("      return g_{}[{}];\n", sum.tensor.name, last),
        fmt::format("      const long long i = {};\n{}{}", last, writer.statements(6), stores));
  }

  // An element that no score depends on may be anything.
  std::string store(const SumPath& path, ExpressionWriter& writer) const {
    const std::string& name = tensor_of(path);
    const DType dtype = attention_.find_tensor(name)->dtype;
    const std::string local = writer.value(path.local);
    for (const ExprId index : attention_.dag[path.load].operands) (void)writer.value(index);
    const std::string element = writer.element(path.load);
    std::string value = fmt::format("sum == 0 ? 0 : sum * ({})", local);
    if (!tensors_.rest(name).empty()) {
      value = fmt::format("({}) + {}", value,
                          real_text(dtype, fmt::format("rest_{}[{}]", name, element)));
    }
    return fmt::format("      d_{}[{}] = {};\n", name, element, element_text(dtype, value));
  }

  void add_parts(const std::string& name) {
    std::vector<PartsWalk> walks;
    for (const SumPath& path : paths_to(name)) walks.push_back(walk_of(attention_, path));
    MadeSteps parts = summed_parts(attention_, *attention_.find_tensor(name), walks,
                                   tensors_.rest(name), ".onward");
    std::ranges::move(parts.internals, std::back_inserter(made_.internals));
    std::ranges::move(parts.steps, std::back_inserter(made_.steps));
  }

  ir::Attention attention_;  // with derivatives
  const SumGradientTensors& tensors_;
  RowKernel kernel_;
  std::vector<SumPath> paths_;
  MadeSteps made_;
};

}  // namespace

plan::KernelStep key_sums_step(const ir::Attention& attention, const std::vector<KeySum>& sums) {
  RowKernel kernel(kKeySumsKernel);
  std::vector<ExprId> read;
  for (const KeySum& sum : sums) kernel.write(sum.tensor.name, DType::f32, "s_" + sum.tensor.name);
  for (const KeySum& sum : sums) {
    const SumShape shape(attention, sum);
    ExpressionWriter writer(attention);
    writer.begin(shape.axes(), shape.dims());
    const std::string value = writer.value(sum.value);
    const std::string i = fmt::format("row * {} + n", shape.keys());
    kernel.add_rows(shape.rows(), shape.keys(),
                    fmt::format("      const long long i = {};\n{}      return {};\n", i,
                                writer.statements(6), value),
                    fmt::format("      s_{}[{}] = (float)sum;\n", sum.tensor.name, i));
    read.push_back(sum.value);
  }
  kernel.read(inputs_of(attention, read));
  return std::move(kernel).finish();
}

MadeSteps key_sum_gradients(const ir::Attention& attention, const SumGradientTensors& tensors) {
  return GradientsMaker(attention, tensors).run();
}

}  // namespace attn::codegen
