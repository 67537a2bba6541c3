#include "compiler/codegen/kernel_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "compiler/codegen/sources.h"
#include "runtime/base/check.h"

namespace attn::codegen {

std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return "unsigned short";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::i8: return "signed char";
    case DType::u8:
    case DType::boolean:
    case DType::e4m3:
    case DType::e5m2:
    case DType::e8m0: return "unsigned char";
    case DType::i32: return "int";
    case DType::i64: return "long long";
  }
  return {};
}

std::string_view float_class(DType dtype) {
  switch (dtype) {
    case DType::f16: return "kernels::F16";
    case DType::e4m3: return "kernels::E4M3";
    case DType::e5m2: return "kernels::E5M2";
    case DType::i8: return "kernels::I8";
    default: ATTN_CHECK(dtype == DType::bf16, to_string(dtype)); return "kernels::BF16";
  }
}

std::string element_text(DType dtype, const std::string& value) {
  const bool is_narrow = dtype == DType::f16 || dtype == DType::bf16;
  if (is_narrow) return fmt::format("{}::narrow((float)({}))", float_class(dtype), value);
  return fmt::format("({})({})", element_type(dtype), value);
}

std::string real_text(DType dtype, const std::string& element) {
  if (dtype == DType::f16) return fmt::format("attn_f16({})", element);
  if (dtype == DType::bf16) return fmt::format("attn_bf16({})", element);
  return "(double)" + element;
}

std::string kernel_text(const char* name, const std::vector<std::string>& parameters,
                        const std::string& body) {
  return fmt::format(
      "extern \"C\" __global__ void {}({}) {{\n  long long i = attn_thread();\n{}}}\n", name,
      fmt::join(parameters, ", "), body);
}

std::string object_text(const std::string& type, const std::string& name,
                        const std::vector<Field>& fields) {
  constexpr std::size_t kWidth = 96;
  std::string text, line = fmt::format("  kernels::{} {};", type, name);
  for (const Field& field : fields) {
    if (field.value.empty()) continue;
    const std::string next = fmt::format("{}.{} = {};", name, field.name, field.value);
    const bool fits = line.size() + 1 + next.size() <= kWidth;
    if (!fits) text += std::exchange(line, " ") + "\n";
    line += " " + next;
  }
  return text + line + "\n";
}

std::string KernelText::read(const std::string& tensor, DType dtype, std::string name) {
  return read(plan::TensorOperand{tensor}, dtype, std::move(name));
}

std::string KernelText::read(const plan::TensorOperand& tensor, DType dtype, std::string name) {
  if (name.empty()) name = fmt::format("in{}", inputs_.size());
  const auto [found, first] = names_.emplace(tensor.name, std::move(name));
  if (first) read(tensor, fmt::format("const {}* {}", element_type(dtype), found->second));
  return found->second;
}

void KernelText::read(plan::OperandSource source, std::string parameter) {
  inputs_.push_back(std::move(parameter));
  step_.inputs.push_back(std::move(source));
}

std::string KernelText::write(const std::string& tensor, DType dtype, std::string meaning,
                              std::string name) {
  if (name.empty()) name = outputs_.empty() ? "out" : fmt::format("out{}", outputs_.size());
  outputs_.push_back(fmt::format("{}* {}", element_type(dtype), name));
  step_.outputs.push_back(tensor);
  step_.expressions.push_back(std::move(meaning));
  return name;
}

void KernelText::make(const std::string& tensor, DType dtype, std::int64_t count,
                      std::string meaning, const std::string& statements) {
  parts_.push_back({count, write(tensor, dtype, std::move(meaning)), statements});
}

// A single part needs no block.
std::string KernelText::parts_text() const {
  std::string text;
  for (const auto& [count, output, statements] : parts_) {
    const std::string out = output == "out" ? "" : fmt::format("    auto* out = {};\n", output);
    text += fmt::format("  if (i < {0}) {{\n{1}    {2}\n    return;\n  }}\n  i -= {0};\n", count,
                        out, statements);
  }
  if (outputs_.size() > 1 || parts_.empty()) return text;
  text = fmt::format("  if (i >= {}) return;\n    {}\n", parts_[0].count, parts_[0].statements);
  for (std::size_t at = 0; (at = text.find("\n    ", at)) != text.npos; ++at) text.erase(at + 1, 2);
  return text;
}

void KernelText::run(std::string_view file, const std::string& type,
                     const std::vector<Field>& fields, const std::string& further_arguments) {
  include(file);
  add(object_text(type, "kernel", fields));
  add(fmt::format("  kernel.run(i{}{});\n", further_arguments.empty() ? "" : ", ",
                  further_arguments));
}

plan::DeriveStep KernelText::finish(bool once) && {
  std::vector<std::string> parameters = outputs_;
  parameters.insert(parameters.end(), inputs_.begin(), inputs_.end());
  step_.once = once;
  if (files_.empty()) include("values.cuh");  // the others include it
  for (const std::string& file : files_) step_.source += include_text(file);
  step_.source += kernel_text(plan::kDeriveKernel, parameters, body_ + parts_text());
  return std::move(step_);
}

}  // namespace attn::codegen
