#include "compiler/engines/shared/epilogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/codegen/epilogue.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/epilogue.h"
#include "runtime/base/ceil_div.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::Dim;
using Tensor = plan::TensorOperand;

constexpr const char* kInnerGradient = "epilogue.do";
constexpr const char* kParts = "epilogue.parts";
constexpr const char* kKernel = "attn_epilogue_backward";
constexpr std::int64_t kThreads = 256, kThreadsOfRow = 16;
constexpr std::int64_t kSharedBytes = 16 * 128 * 4;  // attn/epilogue_gradients.cuh
// Blocks of threads that sum a tensor, and the least rows of each.
constexpr std::int64_t kBlocksOfSums = 528, kRowsOfPart = 64;

// The step before the backward.
class EpilogueStep {
 public:
  explicit EpilogueStep(const ir::Attention& attention)
      : attention_(attention),
        dims_(attention.dims),
        slopes_(*codegen::epilogue_slopes(attention)),
        inputs_(codegen::inputs_of(attention, {*attention.epilogue})),
        has_lse_(!attention.is_pointwise()),
        has_inner_(has_inner_gradients(attention)) {
    if (attention.lengths_q) add_lengths();
    read_starts();
  }

  void add(plan::Program& program) const {
    plan::KernelStep step{
        .outputs = {}, .zeroed = {}, .launches = {main_launch()}, .source = source()};
    if (has_inner_) {
      program.internals.push_back(
          plan::internal_tensor(kInnerGradient, attention_.dtype, {elements_of_o()}));
      step.outputs.emplace_back(kInnerGradient);
    }
    std::int64_t floats = 0;
    if (!writes_rows()) step.launches.clear();
    for (std::size_t i = 0; i < slopes_.tensors.size(); ++i) {
      if (is_first(i)) step.outputs.push_back(gradient::gradient_name(slopes_.tensors[i].name));
      if (is_zeroed(i)) step.launches.insert(step.launches.begin(), zeroing_launch(i));
      if (slopes_.tensors[i].is_own()) continue;
      floats = std::max(floats, kept(i) * parts(i) * columns(i));
      step.launches.push_back(sums_launch(i));
      step.launches.push_back(adding_launch(i));
    }
    if (floats > 0) {
      program.internals.push_back(plan::internal_tensor(kParts, DType::f32, {floats}));
      step.outputs.emplace_back(kParts);
    }
    program.steps.insert(program.steps.begin(), std::move(step));
  }

 private:
  bool packed() const { return layout_of(attention_, "o").kind == ir::LayoutKind::thd; }

  // Whether this read is the first of its tensor, and whether it begins with zeros for others.
  bool is_first(std::size_t i) const {
    return i == 0 || slopes_.tensors[i].name != slopes_.tensors[i - 1].name;
  }
  bool is_zeroed(std::size_t i) const { return is_first(i) && !slopes_.tensors[i].is_whole; }

  // Whether the first kernel has something to write.
  bool writes_rows() const {
    return has_inner_ || std::ranges::any_of(slopes_.tensors, &codegen::EpilogueTensor::is_own);
  }

  void add_lengths() {
    const auto is_it = [](const plan::OperandSource& source) {
      return *plan::name_of(source) == ir::kLengthsQ;
    };
    if (std::ranges::any_of(inputs_.operands, is_it)) return;
    inputs_.operands.emplace_back(Tensor{std::string(ir::kLengthsQ)});
    inputs_.parameters.push_back(fmt::format("const int* t_{}", ir::kLengthsQ));
  }

  // Lengths of packed sequences are read where these begin.
  void read_starts() {
    const auto replace = [this](const char* tensor, std::string_view lengths, const char* starts,
                                Dim dim) {
      if (addressed_by(attention_, tensor) != starts) return;
      for (std::size_t i = 0; i < inputs_.operands.size(); ++i) {
        if (*plan::name_of(inputs_.operands[i]) != lengths) continue;
        inputs_.operands[i] = Tensor{starts};
        inputs_.parameters[i] =
            fmt::format("const kernels::PackedLengths<{}> t_{}", dims_[dim], lengths);
      }
    };
    for (const char* tensor : {"q", "o"}) replace(tensor, ir::kLengthsQ, kRowStarts, Dim::Sq);
    for (const char* tensor : {"k", "v"}) replace(tensor, ir::kLengthsKv, kColumnStarts, Dim::Skv);
  }

  std::int64_t elements_of_o() const {
    const Dims4 dims = stored_dims(attention_, "do"), strides = stored_strides(attention_, "do");
    return *last_offset({dims.begin(), dims.end()}, {strides.begin(), strides.end()}) + 1;
  }

  std::int64_t rows() const { return dims_[Dim::B] * dims_[Dim::Hq] * dims_[Dim::Sq]; }
  // Rows that have elements of a tensor to themselves.
  std::int64_t kept(std::size_t i) const {
    const codegen::EpilogueTensor& of = slopes_.tensors[i];
    return (of.batch != 0 ? dims_[Dim::B] : 1) * (of.head != 0 ? dims_[Dim::Hq] : 1) *
           (of.row != 0 ? dims_[Dim::Sq] : 1);
  }
  std::int64_t parts(std::size_t i) const {
    const std::int64_t shared = rows() / kept(i);
    return std::clamp<std::int64_t>(ceil_div(kBlocksOfSums, kept(i)), 1,
                                    ceil_div(shared, kRowsOfPart));
  }
  std::int64_t columns(std::size_t i) const {
    return slopes_.tensors[i].column != 0 ? dims_[Dim::Dv] : 1;
  }

  // Arguments of all kernels, in the order of their parameters.
  std::vector<plan::KernelArgument> arguments() const {
    std::vector<plan::KernelArgument> all = {Tensor{"o_inner"}, Tensor{"do"}};
    if (has_lse_) all.emplace_back(Tensor{"lse"});
    if (packed()) all.emplace_back(Tensor{kRowStarts});
    for (const codegen::EpilogueTensor& tensor : slopes_.tensors)
      all.emplace_back(Tensor{gradient::gradient_name(tensor.name)});
    for (const plan::OperandSource& source : inputs_.operands) {
      if (const auto* param = std::get_if<plan::ParamOperand>(&source))
        all.emplace_back(*param);
      else
        all.emplace_back(std::get<Tensor>(source));
    }
    return all;
  }

  plan::Launch main_launch() const {
    std::vector<plan::KernelArgument> all = arguments();
    if (has_inner_) all.emplace_back(Tensor{kInnerGradient});
    return {.kernel = kKernel,
            .grid = {ceil_div(rows() * kThreadsOfRow, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(all)};
  }
  plan::Launch zeroing_launch(std::size_t i) const {
    return {.kernel = fmt::format("attn_epilogue_zero_{}", i),
            .grid = {ceil_div(slopes_.tensors[i].elements, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = {Tensor{gradient::gradient_name(slopes_.tensors[i].name)}}};
  }
  plan::Launch sums_launch(std::size_t i) const {
    std::vector<plan::KernelArgument> all = arguments();
    all.emplace_back(Tensor{kParts});
    return {.kernel = fmt::format("attn_epilogue_sums_{}", i),
            .grid = {kept(i) * parts(i), 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kSharedBytes,
            .arguments = std::move(all)};
  }
  plan::Launch adding_launch(std::size_t i) const {
    std::vector<plan::KernelArgument> all = arguments();
    all.emplace_back(Tensor{kParts});
    return {.kernel = fmt::format("attn_epilogue_adding_{}", i),
            .grid = {ceil_div(kept(i) * columns(i), kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(all)};
  }

  // The text.

  std::string source() const {
    std::string text =
        codegen::include_text("epilogue_gradients.cuh") + constants_text() + expressions_text();
    if (writes_rows()) {
      text += kernel_text(kKernel, has_inner_ ? "unsigned short* d_inner" : "",
                          fmt::format("kernels::epilogue_backward<Constants>(tensors, expressions, "
                                      "{});",
                                      has_inner_ ? "d_inner" : "nullptr"));
    }
    for (std::size_t i = 0; i < slopes_.tensors.size(); ++i) {
      const codegen::EpilogueTensor& of = slopes_.tensors[i];
      if (is_zeroed(i)) {
        text += fmt::format(
            "extern \"C\" __global__ void attn_epilogue_zero_{}({}* gradient) {{\n"
            "  const long long i = attn_thread();\n  if (i < {}) gradient[i] = 0;\n}}\n",
            i, codegen::element_type(of.dtype), of.elements);
      }
      if (of.is_own()) continue;
      text += kernel_text(
          fmt::format("attn_epilogue_sums_{}", i), "float* parts",
          fmt::format("kernels::sum_epilogue_parts<Constants, Expressions, {}>(tensors, "
                      "expressions, {}, parts);",
                      i, parts(i)));
      text += kernel_text(
          fmt::format("attn_epilogue_adding_{}", i), "const float* parts",
          fmt::format("kernels::add_epilogue_parts<Constants, Expressions, {}>(expressions, {}, "
                      "parts);",
                      i, parts(i)));
    }
    return text;
  }

  std::string constants_text() const {
    const Dims4 dims = logical_dims(attention_, "do"), strides = stored_strides(attention_, "do");
    const Dims4 of_rows = statistics_strides(attention_);
    const auto places = [&](const char* name, const Dims4& by, std::int64_t width, bool aligned) {
      return fmt::format("  using {} = kernels::Places<{}, {}, {}, {}, {}, {}, {}>;\n", name, by[0],
                         by[1], by[2], by[3], width, aligned, packed());
    };
    return fmt::format(
               "struct Constants {{\n  using Float = {};\n"
               "  static constexpr int kBatches = {}, kHeads = {}, kRows = {};\n"
               "  static constexpr bool kHasLse = {};\n",
               codegen::float_class(attention_.dtype), dims_[Dim::B], dims_[Dim::Hq],
               dims_[Dim::Sq], has_lse_) +
           places("Outputs", strides, dims[3], moves_in_vectors(dims, strides)) +
           places("Statistics", {of_rows[0], of_rows[1], of_rows[2], 0}, 0, false) + "};\n";
  }

  std::string expressions_text() const {
    std::string text = "struct Expressions : kernels::Reals {\n";
    for (std::size_t i = 0; i < slopes_.tensors.size(); ++i)
      text +=
          fmt::format("  {}* gradient_{};\n", codegen::element_type(slopes_.tensors[i].dtype), i);
    for (const std::string& field : inputs_.parameters) text += "  " + field + ";\n";
    const std::string rows = attention_.lengths_q
                                 ? fmt::format("::min(t_{}[b], {})", ir::kLengthsQ, dims_[Dim::Sq])
                                 : std::to_string(dims_[Dim::Sq]);
    return text + codegen::epilogue_slopes_text(slopes_) +
           fmt::format("  __device__ int queries(int b) const {{ return {}; }}\n}};\n", rows);
  }

  std::string kernel_text(const std::string& name, const std::string& last,
                          const std::string& body) const {
    std::vector<std::string> parameters = {"const unsigned short* o", "const unsigned short* d_o"};
    if (has_lse_) parameters.emplace_back("const float* lse");
    if (packed()) parameters.push_back(fmt::format("const int* {}", kRowStarts));
    std::string fields;
    for (std::size_t i = 0; i < slopes_.tensors.size(); ++i) {
      const std::string gradient = fmt::format("gradient_{}", i);
      parameters.push_back(
          fmt::format("{}* {}", codegen::element_type(slopes_.tensors[i].dtype), gradient));
      fields += ", " + gradient;
    }
    for (const std::string& parameter : inputs_.parameters) {
      parameters.push_back(parameter);
      fields += ", " + parameter.substr(parameter.rfind(' ') + 1);
    }
    if (!last.empty()) parameters.push_back(last);
    return fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}) {}(\n    {}) {{\n"
        "  const Expressions expressions{{{{}}{}}};\n"
        "  const kernels::EpilogueTensors tensors{{o, d_o, {}, {}}};\n  {}\n}}\n",
        kThreads, name, fmt::join(parameters, ",\n    "), fields, has_lse_ ? "lse" : "nullptr",
        packed() ? kRowStarts : "nullptr", body);
  }

  const ir::Attention& attention_;
  const ir::Dims& dims_;
  const codegen::EpilogueSlopes slopes_;
  codegen::KernelInputs inputs_;
  const bool has_lse_, has_inner_;
};

// Lets the steps of the inner backward read what the step before makes.
void rename_operands(plan::Program& inner) {
  for (plan::Step& step : inner.steps) {
    plan::change_tensors(step, [](plan::TensorOperand& operand) {
      if (operand.name == "o") operand.name = "o_inner";
      if (operand.name == "do") operand.name = kInnerGradient;
    });
  }
}

// The names that the program's kernels are bound to, those of kernel steps included.
std::set<std::string> used_by(plan::Program& program) {
  std::set<std::string> used;
  for (plan::Step& step : program.steps) {
    plan::change_tensors(step, [&](plan::TensorOperand& operand) { used.insert(operand.name); });
    const auto* kernels = std::get_if<plan::KernelStep>(&step);
    if (kernels == nullptr) continue;
    for (const plan::Launch& launch : kernels->launches) {
      for (const plan::KernelArgument& argument : launch.arguments) {
        if (const auto* param = std::get_if<plan::ParamOperand>(&argument))
          used.insert(param->name);
      }
    }
  }
  const std::set<std::string> others = plan::names_used(program.steps);
  used.insert(others.begin(), others.end());
  return used;
}

}  // namespace

Status check_epilogue_gradients(const ir::Attention& attention) {
  return codegen::epilogue_slopes(attention).status();
}

bool has_inner_gradients(const ir::Attention& attention) {
  return attention.gradients.empty() || !ir::without_epilogue(attention).gradients.empty();
}

plan::Program through_epilogue(const ir::Attention& attention, plan::Program inner) {
  rename_operands(inner);
  plan::Program program = std::move(inner);
  EpilogueStep(attention).add(program);
  const std::set<std::string> used = used_by(program);
  Controls given = controls(attention, used);
  given.internals = program.internals;
  program.tensors = backward_tensors(attention, used, given, gradient_names(attention));
  program.params = bound_params(attention, used);
  return program;
}

}  // namespace attn::engines
