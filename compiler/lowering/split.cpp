#include "compiler/lowering/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "compiler/derive/scores.h"
#include "compiler/lowering/checks.h"
#include "compiler/lowering/controls.h"
#include "compiler/lowering/interface.h"
#include "compiler/lowering/kernel_text.h"
#include "compiler/lowering/operands.h"
#include "compiler/lowering/place.h"
#include "compiler/lowering/row_kernel.h"
#include "compiler/lowering/unsupported.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr std::int64_t kMultiple = 8;                 // elements: what cuDNN's products load by
constexpr double kMostBytes = 0x1p36;                 // of everything between the steps
constexpr const char* kProducts = "scores.products";  // f32 [B,Hq,Sq,columns]
constexpr const char* kScores = "scores.modified";    // f32 [B,Hq,Sq,Skv]
constexpr const char* kKept = "scores.kept";          // i32 [B,Hq,Sq,Skv]
constexpr const char* kSinks = "scores.sinks";        // f32 [Hq]
constexpr const char* kWeights = "scores.weights";    // [B,Hq,Sq,columns]

std::int64_t rounded(std::int64_t extent) {
  return (extent + kMultiple - 1) / kMultiple * kMultiple;
}

class Splitter {
 public:
  explicit Splitter(const ir::Attention& attention)
      : attention_(attention), columns_(rounded(attention.dims[Dim::Skv])) {}

  Result<plan::Program> make() && {
    add_copies();
    add_products();
    program_.steps.emplace_back(add_scores());
    program_.steps.emplace_back(add_weights());
    add_output();
    ATTN_RETURN_IF_ERROR(check_bytes());
    bind();
    derive::check_scores(attention_, program_);
    return std::move(program_);
  }

 private:
  void internal(std::string name, DType dtype, const std::vector<std::int64_t>& dims) {
    std::vector<std::int64_t> strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    program_.internals.push_back({std::move(name), plan::TensorRole::internal, dtype, dims,
                                  std::move(strides), plan::kInternalAlignment});
  }

  static std::string copy_name(std::string_view name) { return fmt::format("{}.packed", name); }

  // [B,H,S,D] with what rounding adds as zeros; the rows of keys become columns of scores.
  Dims4 copy_dims(std::string_view name) const {
    Dims4 dims = logical_dims(attention_, name);
    if (name == "k" || name == "v") dims[2] = columns_;
    dims[3] = rounded(dims[3]);
    return dims;
  }

  void add_copy(const std::string& name) {
    const Dims4 dims = copy_dims(name);
    internal(copy_name(name), attention_.dtype, {dims.begin(), dims.end()});
  }

  void add_copies() {
    KernelText kernel;
    for (const char* name : {"q", "k", "v"}) {
      add_copy(name);
      const Dims4 dims = copy_dims(name);
      const std::string input = kernel.read(name, attention_.dtype);
      kernel.make(copy_name(name), attention_.dtype, dims[0] * dims[1] * dims[2] * dims[3],
                  fmt::format("{}, packed", name),
                  fmt::format("{}\n    out[i] = present ? {}[place] : 0;",
                              place_text(attention_, name, dims, kernel), input));
    }
    program_.steps.emplace_back(std::move(kernel).finish(false));
  }

  // The heads that share keys are rows of one product: q [B Hkv, Hq / Hkv Sq, D].
  std::vector<std::int64_t> grouped(std::int64_t columns) const {
    const ir::Dims& d = attention_.dims;
    return {d[Dim::B] * d[Dim::Hkv], d[Dim::Hq] / d[Dim::Hkv] * d[Dim::Sq], columns};
  }

  static graph::Tensor operand(Uid uid, const std::string& name, DType dtype,
                               std::vector<std::int64_t> dims, std::vector<std::int64_t> strides) {
    return {uid, name, dtype, std::move(dims), std::move(strides), graph::Storage::device, 16, {}};
  }

  static graph::Tensor rows_of(Uid uid, const std::string& name, DType dtype,
                               const std::vector<std::int64_t>& dims) {
    return operand(uid, name, dtype, dims, {dims[1] * dims[2], dims[2], 1});
  }

  // c = a b, of tensors 1, 2 and 3.
  void add_product(const graph::Tensor& a, const graph::Tensor& b, const graph::Tensor& c) {
    plan::CudnnStep step;
    for (const graph::Tensor* tensor : {&a, &b, &c}) {
      step.operands.push_back({tensor->uid, plan::TensorOperand{tensor->name}});
      step.graph.tensors.push_back(*tensor);
    }
    graph::Matmul product;
    product.a = a.uid;
    product.b = b.uid;
    product.c = c.uid;
    product.pos = attention_.pos;
    step.graph.nodes.emplace_back(product);
    program_.steps.emplace_back(std::move(step));
  }

  void add_products() {
    const Dims4 k = copy_dims("k");
    internal(kProducts, DType::f32, scores_dims(columns_));
    add_product(rows_of(1, copy_name("q"), attention_.dtype, grouped(k[3])),
                operand(2, copy_name("k"), attention_.dtype, {k[0] * k[1], k[3], k[2]},
                        {k[2] * k[3], 1, k[3]}),
                rows_of(3, kProducts, DType::f32, grouped(columns_)));
  }

  void add_output() {
    const Dims4 v = copy_dims("v");
    add_copy("o");
    add_product(rows_of(1, kWeights, attention_.dtype, grouped(columns_)),
                rows_of(2, copy_name("v"), attention_.dtype, {v[0] * v[1], v[2], v[3]}),
                rows_of(3, copy_name("o"), attention_.dtype, grouped(v[3])));
    KernelText kernel;
    const Dims4 dims = logical_dims(attention_, "o");
    const std::string copy = kernel.read(copy_name("o"), attention_.dtype);
    kernel.make("o", attention_.dtype, dims[0] * dims[1] * dims[2] * dims[3], "where it belongs",
                copy_out_text(attention_, "o", copy, v[3], kernel));
    program_.steps.emplace_back(std::move(kernel).finish(false));
  }

  std::vector<std::int64_t> scores_dims(std::int64_t columns) const {
    const ir::Dims& d = attention_.dims;
    return {d[Dim::B], d[Dim::Hq], d[Dim::Sq], columns};
  }

  plan::DeriveStep add_scores() {
    const std::int64_t columns = attention_.dims[Dim::Skv];
    internal(kScores, DType::f32, scores_dims(columns));
    if (attention_.dropout) internal(kKept, DType::i32, scores_dims(columns));
    if (attention_.sink) internal(kSinks, DType::f32, {attention_.dims[Dim::Hq]});
    return derive::scores_step(attention_, {kProducts, columns_, kScores, kKept, kSinks});
  }

  plan::DeriveStep add_weights() {
    internal(kWeights, attention_.dtype, scores_dims(columns_));
    return row_kernel(attention_, {kScores, attention_.sink ? kSinks : "",
                                   attention_.dropout ? kKept : "", kWeights, columns_});
  }

  Status check_bytes() const {
    double bytes = 0;
    for (const plan::TensorInfo& tensor : program_.internals) {
      double own = static_cast<double>(size_of(tensor.dtype));
      for (const std::int64_t dim : tensor.dims) own *= static_cast<double>(dim);
      bytes += own;
    }
    if (bytes <= kMostBytes) return {};
    return unsupported(attention_.pos,
                       fmt::format("the scores of `{}` and what is made of them take {:.0f} GB "
                                   "without a fused kernel",
                                   attention_.name, bytes / 1e9),
                       fmt::format("at most {:.0f} GB are used", kMostBytes / 1e9));
  }

  static void add_names(std::set<std::string>& names, const plan::OperandSource& source) {
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&source)) names.insert(tensor->name);
    if (const auto* param = std::get_if<plan::ParamOperand>(&source)) names.insert(param->name);
  }

  void bind() {
    std::set<std::string> used;
    for (const plan::DeriveStep* step : plan::steps_of<plan::DeriveStep>(program_)) {
      for (const plan::OperandSource& input : step->inputs) add_names(used, input);
    }
    Controls made = controls(attention_, used);
    program_.tensors = bound_tensors(attention_, used, made);
    for (plan::TensorInfo& tensor : made.internals) {
      program_.internals.push_back(std::move(tensor));
    }
    program_.steps.insert(program_.steps.begin(), made.steps.begin(), made.steps.end());
    for (const ir::Param& param : attention_.params) {
      if (used.contains(param.name)) program_.params.push_back({param.name, param.dtype});
    }
  }

  const ir::Attention& attention_;
  std::int64_t columns_;
  plan::Program program_;
};

}  // namespace

Result<plan::Program> lower_split(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  if (attention.dims[ir::Dim::Skv] == 0) {
    return unsupported(attention.pos, "without keys there are no products to split");
  }
  if (attention.dropout && !attention.dropout->keep) {
    return unsupported(attention.dropout->pos,
                       "only cuDNN's fused kernels know what their dropout keeps",
                       "give the mask: `dropout p, keep[b, h, q_idx, kv_idx]`");
  }
  ATTN_ASSIGN(plan::Program program, Splitter(attention).make());
  ATTN_RETURN_IF_ERROR(check_program(attention, program));
  return program;
}

}  // namespace attn::lowering
