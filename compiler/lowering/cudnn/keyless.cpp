#include "compiler/lowering/cudnn/keyless.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "compiler/lowering/common/controls.h"
#include "compiler/lowering/common/kernel_text.h"
#include "compiler/lowering/cudnn/lengths.h"
#include "compiler/lowering/cudnn/operands.h"
#include "compiler/lowering/cudnn/vectors.h"

namespace attn::lowering {
namespace {

using ir::Dim;

class Maker {
 public:
  explicit Maker(const ir::Attention& attention) : attention_(attention) {}

  plan::DeriveStep make() && {
    const ir::Dims& d = attention_.dims;
    const std::string lengths = read(std::string(ir::kLengthsKv));
    std::string text = fmt::format(
        "  if (i >= {0}LL) return;\n"
        "  const long long s = i % {1}, h = i / {1} % {2}, b = i / {1} / {2};\n"
        "  if ({3}[b] > 0) return;\n",
        d[Dim::B] * d[Dim::Hq] * d[Dim::Sq], d[Dim::Sq], d[Dim::Hq], lengths);
    std::string row = fmt::format("b * {}LL + s", d[Dim::Sq]);
    const bool ragged = !addressed_by(attention_, "o").empty();
    if (ragged) {
      const std::string starts = read(kRowStarts);
      text += fmt::format("  if (s >= {0}[b + 1] - {0}[b]) return;\n", starts);
      row = fmt::format("{}[b] + s", starts);
    }
    text += output(ragged, row);
    const std::string place =
        ragged ? fmt::format("({}) * {}LL + h", row, d[Dim::Hq]) : std::string("i");
    text += statistic("lse", attention_.wants_lse, place, "-1.0f / 0.0f");
    text += statistic("max", attention_.wants_max, place, "-1.0f / 0.0f");
    text += statistic("sum_exp", attention_.wants_sum_exp, place, "0");
    parameters_.insert(parameters_.end(), inputs_.begin(), inputs_.end());
    step_.amends = d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
    step_.source = fmt::format(
        "extern \"C\" __global__ void {}({}) {{\n"
        "  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n{}}}\n",
        plan::kDeriveKernel, fmt::join(parameters_, ", "), text);
    return std::move(step_);
  }

 private:
  std::string read(const std::string& tensor) {
    inputs_.push_back(fmt::format("const int* in{}", inputs_.size()));
    step_.inputs.emplace_back(plan::TensorOperand{tensor});
    return fmt::format("in{}", inputs_.size() - 1);
  }

  void write(const std::string& tensor, const std::string& type) {
    step_.outputs.push_back(tensor);
    step_.expressions.emplace_back("value for batches without keys");
    parameters_.push_back(fmt::format("{}* {}", type, tensor));
  }

  std::string output(bool ragged, const std::string& row) {
    write("o", c_type(attention_.dtype));
    const Dims4 strides = stored_strides(attention_, "o");
    const std::string begin = ragged ? fmt::format("({}) * {}LL", row, strides[2])
                                     : fmt::format("b * {}LL + s * {}LL", strides[0], strides[2]);
    const std::string row_text = fmt::format("{} + h * {}LL", begin, strides[1]);
    const std::int64_t width = attention_.dims[Dim::Dv];
    if (!moves_in_vectors(logical_dims(attention_, "o"), strides)) {
      return fmt::format("  for (int d = 0; d < {}; ++d) o[{} + d * {}LL] = 0;\n", width, row_text,
                         strides[3]);
    }
    return fmt::format(
        "  uint4* const to = reinterpret_cast<uint4*>(o + {});\n"
        "  for (int d = 0; d < {}; ++d) to[d] = uint4{{}};\n",
        row_text, width / kVector);
  }

  std::string statistic(const char* name, bool wanted, const std::string& place,
                        const char* value) {
    if (!wanted) return "";
    write(name, "float");
    return fmt::format("  {}[{}] = {};\n", name, place, value);
  }

  const ir::Attention& attention_;
  std::vector<std::string> parameters_, inputs_;
  plan::DeriveStep step_;
};

// One thread per row of each gradient.
class ZeroMaker {
 public:
  explicit ZeroMaker(const ir::Attention& attention) : attention_(attention) {}

  plan::DeriveStep make(const std::vector<std::string>& gradients) && {
    const std::string rows = read(std::string(ir::kLengthsQ));
    const std::string columns = read(std::string(ir::kLengthsKv));
    std::string text;
    for (const std::string& name : gradients) text += part(name, rows, columns);
    parameters_.insert(parameters_.end(), inputs_.begin(), inputs_.end());
    step_.source = fmt::format(
        "extern \"C\" __global__ void {}({}) {{\n"
        "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n{}}}\n",
        plan::kDeriveKernel, fmt::join(parameters_, ", "), text);
    return std::move(step_);
  }

 private:
  std::string read(const std::string& tensor) {
    const plan::OperandSource source = plan::TensorOperand{tensor};
    const auto known = std::ranges::find(step_.inputs, source);
    if (known != step_.inputs.end()) return fmt::format("in{}", known - step_.inputs.begin());
    inputs_.push_back(fmt::format("const int* in{}", inputs_.size()));
    step_.inputs.push_back(source);
    return fmt::format("in{}", inputs_.size() - 1);
  }

  std::string part(const std::string& name, const std::string& rows, const std::string& columns) {
    const Dims4 dims = logical_dims(attention_, name), strides = stored_strides(attention_, name);
    const std::int64_t count = dims[0] * dims[1] * dims[2];
    step_.amends += count;
    step_.outputs.push_back(name);
    step_.expressions.emplace_back("0 for batches without rows or keys");
    parameters_.push_back(fmt::format("{}* {}", c_type(attention_.dtype), name));
    std::string begin = fmt::format("b * {}LL + s * {}LL", strides[0], strides[2]);
    std::string present = "true";
    if (const std::string by = addressed_by(attention_, name); !by.empty()) {
      const std::string starts = read(by);
      begin = fmt::format("({}[b] + s) * {}LL", starts, strides[2]);
      present = fmt::format("s < {0}[b + 1] - {0}[b]", starts);
    }
    return fmt::format(
        "  if (i < {0}LL) {{\n"
        "    const long long s = i % {1}, h = i / {1} % {2}, b = i / {1} / {2};\n"
        "    if ({3}[b] > 0 && {4}[b] > 0 || !({5})) return;\n"
        "    for (int d = 0; d < {6}; ++d) {7}[{8} + h * {9}LL + d * {10}LL] = 0;\n"
        "    return;\n  }}\n  i -= {0}LL;\n",
        count, dims[2], dims[1], rows, columns, present, dims[3], name, begin, strides[1],
        strides[3]);
  }

  const ir::Attention& attention_;
  std::vector<std::string> parameters_, inputs_;
  plan::DeriveStep step_;
};

}  // namespace

std::optional<plan::DeriveStep> keyless_backward(const ir::Attention& attention,
                                                 const std::vector<std::string>& gradients) {
  if (!has_lengths(attention) || gradients.empty()) return std::nullopt;
  return ZeroMaker(attention).make(gradients);
}

std::optional<plan::DeriveStep> keyless(const ir::Attention& attention) {
  if (!has_column_lengths(attention)) return std::nullopt;
  if (attention.dims[Dim::Sq] == 1 || attention.sink) return std::nullopt;
  return Maker(attention).make();
}

}  // namespace attn::lowering
