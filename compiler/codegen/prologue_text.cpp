#include "compiler/codegen/prologue_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "compiler/codegen/sources.h"
#include "runtime/base/ceil_div.h"

namespace attn::codegen {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr masks::Axes kAll{.batch = true, .head = true, .row = true, .column = true};

}  // namespace

std::string offset_text(const std::array<std::int64_t, 4>& strides, const std::string& column) {
  return fmt::format("(long long)b * {} + (long long)h * {} + (long long)row * {} + {} * {}",
                     strides[0], strides[1], strides[2], column, strides[3]);
}

std::string place_text(const ir::PrologueView& view, std::string_view number, int indent) {
  const ir::Dims& d = view.attention.dims;
  return fmt::format(
      "{0:{1}}const int row = (int)({2} % {3}), h = (int)({2} / {3} % {4}), b = (int)({2} / "
      "{5});\n",
      "", indent, number, d[Dim::Sq], d[Dim::Hq], d[Dim::Sq] * d[Dim::Hq]);
}

RowWriter::RowWriter(const ir::Attention& attention, const ir::PrologueView& view,
                     Precision precision)
    : element([](const std::string& column) { return fmt::format("x[{}]", column); }),
      sum([](std::int64_t number) { return fmt::format("sum{}", number); }),
      view_(view),
      attention_(attention),
      writer_(attention, {}, precision) {
  writer_.begin(kAll);
}

std::string RowWriter::value(ExprId root) {
  for (const ExprId id : ir::reachable(attention_.dag, std::span(&root, 1))) {
    if (!known_.insert(id).second) continue;
    const ir::Node& node = attention_.dag[id];  // the view's, or a derivative
    if (!node.is(Op::load_)) continue;
    const std::string& name = attention_.dag.symbol_of(id);
    if (name == view_.sums_of_row) writer_.set_value(id, sum(view_.number_of(id)));
    if (name == view_.x) writer_.set_value(id, element(column_of(id)));
  }
  return writer_.value(root);
}

void RowWriter::set_value(ExprId id, const std::string& text) {
  known_.insert(id);
  writer_.set_value(id, text);
}

std::string RowWriter::column_of(ExprId load) {
  return writer_.value(attention_.dag[load].operands.back());
}

std::string RowWriter::element_of(ExprId load) {
  for (const ExprId index : attention_.dag[load].operands) (void)value(index);
  return writer_.element(load);
}

std::string loop_text(std::int64_t columns, const std::string& body) {
  return fmt::format("    for (int column = lane; column < {}; column += 32) {{\n{}    }}\n",
                     columns, body);
}

std::string sums_text(const ir::Attention& attention, const ir::PrologueView& view) {
  std::string text;
  for (std::size_t i = 0; i < view.sums.size(); ++i) {
    RowWriter writer(attention, view);
    const std::string value = writer.value(view.sums[i]);
    text += fmt::format(
        "    float sum{0} = 0;\n{1}    sum{0} = kernels::sum_of_lanes(sum{0});\n", i,
        loop_text(view.columns(),
                  fmt::format("{}      sum{} += {};\n", writer.statements(6), i, value)));
  }
  return text;
}

void WarpKernel::write(const std::string& tensor, DType dtype, const std::string& parameter) {
  step_.outputs.push_back(tensor);
  add(tensor, fmt::format("{}* {}", element_type(dtype), parameter));
}

void WarpKernel::read(const std::string& tensor, DType dtype, const std::string& parameter) {
  add(tensor, fmt::format("const {}* {}", element_type(dtype), parameter));
}

void WarpKernel::read(const KernelInputs& inputs, const std::set<std::string>& but) {
  for (std::size_t i = 0; i < inputs.operands.size(); ++i) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&inputs.operands[i]);
    const std::string& name =
        tensor != nullptr ? tensor->name : std::get<plan::ParamOperand>(inputs.operands[i]).name;
    if (but.contains(name) || !read_.insert(name).second) continue;
    parameters_.push_back(inputs.parameters[i]);
    if (tensor != nullptr) {
      launch_.arguments.emplace_back(*tensor);
    } else {
      launch_.arguments.emplace_back(std::get<plan::ParamOperand>(inputs.operands[i]));
    }
  }
}

void WarpKernel::add_rows(std::int64_t rows, const std::string& body) {
  body_ +=
      fmt::format("  if (number < {0}) {{\n{1}    return;\n  }}\n  number -= {0};\n", rows, body);
  rows_ += rows;
}

plan::KernelStep WarpKernel::finish(std::int64_t rows, std::int64_t columns,
                                    bool keeps_results) && {
  launch_.kernel = name_;
  launch_.grid = {ceil_div(rows_, kPrologueWarps), 1, 1};
  launch_.block = {kPrologueWarps * 32, 1, 1};
  const std::string results =
      fmt::format("  alignas(16) __shared__ unsigned short results[{}][{}][{}];\n", kPrologueWarps,
                  rows, columns);
  step_.source = fmt::format(
      "{}extern \"C\" __global__ void {}({}) {{\n"
      "  alignas(16) __shared__ float rows[{}][{}][{}];\n{}"
      "  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;\n"
      "  long long number = kernels::row_of_warp();\n{}}}\n",
      include_text("prologues.cuh"), name_, fmt::join(parameters_, ", "), kPrologueWarps, rows,
      columns, keeps_results ? results : "", body_);
  step_.launches.push_back(std::move(launch_));
  return std::move(step_);
}

void WarpKernel::add(const std::string& tensor, std::string parameter) {
  launch_.arguments.emplace_back(plan::TensorOperand{tensor});
  parameters_.push_back(std::move(parameter));
}

std::string loaded(const PrologueRows& rows) {
  const ir::PrologueView& view = *rows.view;
  const std::string from =
      fmt::format("from_{}[{}]", view.tensor, offset_text(rows.strides, "column"));
  return loop_text(view.columns(), fmt::format("      x[column] = (float)({});\n",
                                               real_text(view.attention.dtype, from)));
}

std::set<std::string> own_names(const ir::PrologueView& view) { return {view.x, view.sums_of_row}; }

}  // namespace attn::codegen
