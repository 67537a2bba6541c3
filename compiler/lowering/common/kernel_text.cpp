#include "compiler/lowering/common/kernel_text.h"

#include <fmt/format.h>

#include "runtime/base/check.h"

namespace attn::lowering {

std::string c_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return "unsigned short";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::i64: return "long long";
    default: ATTN_CHECK(dtype == DType::i32, "a type that kernels of lowering use"); return "int";
  }
}

std::string KernelText::read(const std::string& tensor, DType dtype) {
  return read(plan::TensorOperand{tensor}, dtype);
}

std::string KernelText::read(const plan::TensorOperand& tensor, DType dtype) {
  const auto [found, first] = names_.emplace(tensor.name, fmt::format("in{}", inputs_.size()));
  const std::string& name = found->second;
  if (!first) return name;
  inputs_.push_back(fmt::format("const {}* {}", c_type(dtype), name));
  step_.inputs.emplace_back(tensor);
  return name;
}

std::string KernelText::write(const std::string& tensor, DType dtype, std::string meaning) {
  std::string name = fmt::format("out{}", outputs_.size());
  outputs_.push_back(fmt::format("{}* {}", c_type(dtype), name));
  step_.outputs.push_back(tensor);
  step_.expressions.push_back(std::move(meaning));
  return name;
}

void KernelText::make(const std::string& tensor, DType dtype, std::int64_t count,
                      std::string meaning, const std::string& statement) {
  const std::string name = write(tensor, dtype, std::move(meaning));
  body_ += fmt::format(
      "  if (i < {0}) {{\n    auto* out = {1};\n    {2}\n    return;\n  }}\n  i -= {0};\n", count,
      name, statement);
}

plan::DeriveStep KernelText::finish(bool once) && {
  std::vector<std::string> parameters = outputs_;
  parameters.insert(parameters.end(), inputs_.begin(), inputs_.end());
  step_.once = once;
  step_.source =
      before_ +
      fmt::format(
          "extern \"C\" __global__ void {}({}) {{\n"
          "  long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;\n{}}}\n",
          plan::kDeriveKernel, fmt::join(parameters, ", "), body_);
  return std::move(step_);
}

}  // namespace attn::lowering
