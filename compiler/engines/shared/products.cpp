#include "compiler/engines/shared/products.h"

#include <fmt/format.h>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/support/text.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::Dim;

constexpr std::int64_t kVectorElements = 8;  // elements that cuDNN's products load at once
constexpr double kMostBytes = 0x1p36;        // of all internal tensors

std::int64_t rounded(std::int64_t extent) {
  return (extent + kVectorElements - 1) / kVectorElements * kVectorElements;
}

std::string packed_name(const std::string& name) { return name + ".packed"; }

bool is_of_keys(const std::string& name) {
  return layout_owner(name) == "k" || layout_owner(name) == "v";
}

graph::Tensor operand(Uid uid, const Matrix& matrix) {
  const auto& [n, rows, columns] = matrix.dims;
  const std::int64_t held = matrix.rows_held == 0 ? rows : matrix.rows_held;
  graph::Tensor tensor{uid, matrix.tensor, matrix.dtype, {}, {}, graph::Storage::device, 16, {}};
  if (matrix.turned) {
    tensor.dims = {n, columns, rows};
    tensor.strides = {held * columns, 1, columns};
  } else {
    tensor.dims = {n, rows, columns};
    tensor.strides = {held * columns, columns, 1};
  }
  return tensor;
}

plan::TensorOperand source(const Matrix& matrix) {
  const std::int64_t columns = matrix.dims[2];
  return {matrix.tensor, matrix.first_row * columns, matrix.advance * columns};
}

}  // namespace

Matrix turned(Matrix matrix) {
  matrix.turned = !matrix.turned;
  return matrix;
}

Products::Products(const ir::Attention& attention)
    : attention_(attention), columns_(rounded(attention.dims[Dim::Skv])) {}

std::vector<std::int64_t> Products::scores_dims(std::int64_t columns) const {
  const ir::Dims& d = attention_.dims;
  return {d[Dim::B], d[Dim::Hq], d[Dim::Sq], columns};
}

void Products::add_internal(std::string name, DType dtype, const std::vector<std::int64_t>& dims) {
  internals_.push_back(plan::internal_tensor(std::move(name), dtype, dims));
}

void Products::add_step(plan::Step step) {
  std::visit([this](auto& each) { each.turns = turns_; }, step);
  steps_.push_back(std::move(step));
}

void Products::add_copies_in(const std::vector<std::string>& names) {
  codegen::KernelText kernel;
  for (const std::string& name : names) {
    add_copy(name);
    const Dims4 dims = copy_dims(name);
    const std::string input = kernel.read(name, attention_.dtype);
    const std::string place = place_text(attention_, name, dims, kernel);
    kernel.make(packed_name(name), attention_.dtype, count_of(dims),
                fmt::format("{}, packed", name),
                fmt::format("{}\n    out[i] = present{} ? {}[place] : 0;", place,
                            within_lengths(name, kernel), input));
  }
  add_step(std::move(kernel).finish(false));
}

void Products::add_copy(const std::string& name) {
  const Dims4 dims = copy_dims(name);
  add_internal(packed_name(name), attention_.dtype, {dims.begin(), dims.end()});
}

void Products::add_copies_out(const std::vector<std::string>& names) {
  codegen::KernelText kernel;
  for (const std::string& name : names) {
    const std::string copy = kernel.read(packed_name(name), attention_.dtype);
    kernel.make(name, attention_.dtype, count_of(logical_dims(attention_, name)), "unpacked",
                copy_out_text(attention_, name, copy, copy_dims(name), kernel));
  }
  add_step(std::move(kernel).finish(false));
}

Matrix Products::copy(const std::string& name) const {
  const Dims4 dims = copy_dims(name);
  const ir::Dims& d = attention_.dims;
  const std::int64_t groups = d[Dim::B] * d[Dim::Hkv];
  return {
      packed_name(name), attention_.dtype, {groups, dims[0] * dims[1] * dims[2] / groups, dims[3]}};
}

Matrix Products::scores(std::string tensor, DType dtype) const {
  const ir::Dims& d = attention_.dims;
  return {std::move(tensor),
          dtype,
          {d[Dim::B] * d[Dim::Hkv], d[Dim::Hq] / d[Dim::Hkv] * d[Dim::Sq], columns_}};
}

void Products::add_product(const Matrix& a, const Matrix& b, const Matrix& c) {
  plan::CudnnStep step;
  for (const Matrix* matrix : {&a, &b, &c}) {
    const Uid uid = static_cast<Uid>(step.operands.size()) + 1;
    step.operands.push_back({uid, source(*matrix)});
    step.graph.tensors.push_back(operand(uid, *matrix));
  }
  graph::Matmul product;
  product.a = 1;
  product.b = 2;
  product.c = 3;
  product.pos = attention_.pos;
  step.graph.nodes.emplace_back(product);
  add_step(std::move(step));
}

Status Products::check_bytes() const {
  double bytes = 0;
  for (const plan::TensorInfo& tensor : internals_) {
    double own = static_cast<double>(size_of(tensor.dtype));
    for (const std::int64_t dim : tensor.dims) own *= static_cast<double>(dim);
    bytes += own;
  }
  if (bytes <= kMostBytes) return {};
  const support::Excess words = support::excess(bytes, kMostBytes);
  return unsupported(
      attention_.pos,
      fmt::format("the scores of `{}` and tensors computed from them take {} of memory, "
                  "and the limit is {}",
                  attention_.name, words.amount, words.most),
      "use fewer batches, heads or rows in one call");
}

plan::Program Products::program(const List& bound) const {
  const std::set<std::string> used = plan::names_used(steps_);
  const Controls made = controls(attention_, used);
  plan::Program program;
  program.tensors = bound(used, made);
  program.internals = internals_;
  program.internals.insert(program.internals.end(), made.internals.begin(), made.internals.end());
  program.steps.assign(made.steps.begin(), made.steps.end());
  program.steps.insert(program.steps.end(), steps_.begin(), steps_.end());
  program.params = bound_params(attention_, used);
  return program;
}

Dims4 Products::copy_dims(const std::string& name) const {
  Dims4 dims = logical_dims(attention_, name);
  if (is_of_keys(name)) dims[2] = columns_;
  dims[3] = rounded(dims[3]);
  return dims;
}

// thd and paged tensors have no rows past the lengths.
std::string Products::within_lengths(const std::string& name, codegen::KernelText& kernel) const {
  if (!addressed_by(attention_, name).empty()) return "";
  const bool keys = is_of_keys(name);
  if (keys ? !has_column_lengths(attention_) : !has_row_lengths(attention_)) return "";
  const std::string_view lengths = keys ? ir::kLengthsKv : ir::kLengthsQ;
  return fmt::format(" && s < {}[b]", kernel.read(std::string(lengths), DType::i32));
}

}  // namespace attn::engines
