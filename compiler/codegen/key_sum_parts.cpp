#include "compiler/codegen/key_sum_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/learned.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::codegen {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

// As in LearnedSteps: the largest part of each element, and then the sum of all.
class PartsMaker {
 public:
  PartsMaker(const ir::Attention& attention, const SummedParts& parts)
      : attention_(attention),
        parts_(parts),
        tensor_(*attention.find_tensor(parts.name)),
        elements_(elements_of(attention, tensor_)),
        output_(gradient::gradient_name(parts.name)),
        largest_(output_ + ".onward.largest"),
        sums_(output_ + ".onward.sums") {}

  SumGradients run() && {
    if (!parts_.paths.empty()) {
      add_words();
      for (const SumPath& path : parts_.paths) add_largest(path);
      for (const SumPath& path : parts_.paths) add_sum(path);
    }
    add_result();
    return std::move(made_);
  }

 private:
  int spare() const {
    std::size_t count = 0;
    for (const SumPath& path : parts_.paths) {
      const SumShape shape(attention_, path.sum);
      count += static_cast<std::size_t>(shape.rows() * shape.keys());
    }
    return kBits - static_cast<int>(std::bit_width(count - 1));
  }

  void add_step(KernelText kernel, std::int64_t amends = 0) {
    plan::DeriveStep step = std::move(kernel).finish(false);
    step.amends = amends;
    made_.steps.emplace_back(std::move(step));
  }

  void add_words() {
    KernelText kernel;
    for (const std::string& name : {largest_, sums_}) {
      made_.internals.push_back(plan::internal_tensor(name, DType::i64, {elements_}));
      kernel.make(name, DType::i64, elements_, "0", "out[i] = 0;");
    }
    add_step(std::move(kernel));
  }

  std::string meaning(const char* what, const SumPath& path) const {
    return fmt::format("{} the parts of {}", what, ir::to_source(attention_, path.load));
  }

  void add_largest(const SumPath& path) {
    KernelText kernel;
    kernel.write(largest_, DType::i64, meaning("the largest of", path), "largest");
    add_walk(std::move(kernel), path, "LargestPart", {{"parts.largest", "largest"}});
  }

  void add_sum(const SumPath& path) {
    KernelText kernel;
    kernel.write(sums_, DType::i64, meaning("the sum of", path), "sums");
    kernel.read(largest_, DType::i64, "largest");
    add_walk(std::move(kernel), path, "SumOfParts",
             {{"parts.largest", "largest"}, {"parts.sums", "sums"}, {"parts.spare", spare()}});
  }

  void add_walk(KernelText kernel, const SumPath& path, const char* parts,
                std::vector<Field> fields) {
    const SumShape shape(attention_, path.sum);
    const std::int64_t threads = ceil_div(shape.rows(), kRun) * shape.keys();
    fields.insert(fields.end(),
                  {{"threads", threads}, {"rows", shape.rows()}, {"columns", shape.keys()}});
    kernel.run("learned.cuh", fmt::format("Walk<kernels::{}>", parts), fields, part_at(path));
    std::vector<ExprId> read = {path.local};
    const std::vector<ExprId>& indexes = attention_.dag[path.load].operands;
    read.insert(read.end(), indexes.begin(), indexes.end());
    read_inputs(kernel, inputs_of(attention_, read));
    kernel.read(path.onward, DType::f32, "onward");
    add_step(std::move(kernel), threads);
  }

  std::string part_at(const SumPath& path) const {
    const SumShape shape(attention_, path.sum);
    ExpressionWriter writer(attention_);
    writer.begin(shape.axes(), shape.dims());
    const std::string local = writer.value(path.local);
    for (const ExprId index : attention_.dag[path.load].operands) (void)writer.value(index);
    const std::string element = writer.element(path.load);
    return fmt::format(
        "[&](long long local, long long c, long long& element, double& part) {{\n"
        "    const long long i = local * {} + c;\n    const double cotangent = onward[i];\n"
        "    if (cotangent == 0) return false;\n{}    element = {};\n"
        "    part = cotangent * {};\n    return true;\n  }}",
        shape.keys(), writer.statements(4), element, local);
  }

  void add_result() {
    KernelText kernel;
    std::string value = "0";
    if (!parts_.paths.empty()) {
      kernel.include("learned.cuh");
      kernel.read(largest_, DType::i64, "largest");
      kernel.read(sums_, DType::i64, "sums");
      value = fmt::format("kernels::sum_of_parts(largest[i], sums[i], {})", spare());
    }
    if (!parts_.rest.empty()) {
      const std::string rest = kernel.read(parts_.rest, tensor_.dtype, "rest");
      value += " + " + real_text(tensor_.dtype, rest + "[i]");
    }
    kernel.make(output_, tensor_.dtype, elements_, "the sum of the parts",
                fmt::format("out[i] = {};", element_text(tensor_.dtype, value)));
    add_step(std::move(kernel));
  }

  const ir::Attention& attention_;
  const SummedParts& parts_;
  const ir::CapturedTensor& tensor_;
  const std::int64_t elements_;
  const std::string output_, largest_, sums_;
  SumGradients made_;
};

}  // namespace

SumShape::SumShape(const ir::Attention& attention, const ir::KeySum& sum) {
  axes_.batch = sum.of_batch;
  axes_.head = sum.of_head;
  axes_.column = true;
  if (sum.of_batch) dims_.push_back(attention.dims[Dim::B]);
  if (sum.of_head) dims_.push_back(attention.dims[Dim::Hq]);
  dims_.push_back(attention.dims[Dim::Skv]);
}

std::int64_t SumShape::rows() const {
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < dims_.size(); ++axis) rows *= dims_[axis];
  return rows;
}

bool reads_each_once(const ir::Attention& attention, const SumPath& path) {
  const ir::Node& load = attention.dag[path.load];
  const std::pair<Op, Dim> axes[] = {
      {Op::batch_, Dim::B}, {Op::head_, Dim::Hq}, {Op::column_, Dim::Skv}};
  const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(path.load));
  std::set<Op> seen;
  for (std::size_t axis = 0; axis < load.operands.size(); ++axis) {
    const Op op = attention.dag[load.operands[axis]].op;
    const auto* found = std::ranges::find(axes, op, &std::pair<Op, Dim>::first);
    if (found == std::end(axes) || !seen.insert(op).second) return false;
    const auto extent = ir::fold_integer(attention.dag, tensor.extents[axis], attention.dims);
    if (extent != attention.dims[found->second]) return false;
  }
  return seen.size() == SumShape(attention, path.sum).dims().size() && seen.contains(Op::column_);
}

SumGradients summed_parts(const ir::Attention& attention, const SummedParts& parts) {
  return PartsMaker(attention, parts).run();
}

}  // namespace attn::codegen
