#include "compiler/lowering/keyless.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/kernel_text.h"
#include "compiler/lowering/lengths.h"
#include "compiler/lowering/operands.h"

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
    step_.expressions.emplace_back("without keys");
    parameters_.push_back(fmt::format("{}* {}", type, tensor));
  }

  std::string output(bool ragged, const std::string& row) {
    write("o", c_type(attention_.dtype));
    const Dims4 strides = stored_strides(attention_, "o");
    const std::string begin = ragged ? fmt::format("({}) * {}LL", row, strides[2])
                                     : fmt::format("b * {}LL + s * {}LL", strides[0], strides[2]);
    return fmt::format("  for (int d = 0; d < {}; ++d) o[{} + h * {}LL + d * {}LL] = 0;\n",
                       attention_.dims[Dim::Dv], begin, strides[1], strides[3]);
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

}  // namespace

std::optional<plan::DeriveStep> keyless(const ir::Attention& attention) {
  if (!has_column_lengths(attention)) return std::nullopt;
  if (attention.dims[Dim::Sq] == 1 || attention.sink) return std::nullopt;
  return Maker(attention).make();
}

}  // namespace attn::lowering
