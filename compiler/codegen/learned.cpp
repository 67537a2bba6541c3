#include "compiler/codegen/learned.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/scores.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::codegen {
namespace {

using ir::Dim;
using ir::ExprId;

// Gathers as a loop over scores or rows: one, or several that differ in constants alone, which it
// takes in turns.
struct Walk {
  ExprId load = 0;
  std::int64_t columns = 1;  // that the loop covers
  std::int64_t turns = 1;
  std::string part_at;  // statements, with the row `local` and the column `c`
  KernelInputs inputs;
  std::vector<std::string> tensors;  // f32, read by their parameter names
};

// Gathers of one shape, of which there are many.
struct Gathers {
  Family loads, locals;
};

std::vector<Gathers> in_turns(const ir::Dag& dag, const std::vector<gradient::Gather>& gathers) {
  Repetitions shapes(dag, [](ExprId) { return false; });
  std::map<std::pair<std::size_t, std::size_t>, std::vector<gradient::Gather>> alike;
  for (const gradient::Gather& gather : gathers)
    alike[{shapes.shape_of(gather.load), shapes.shape_of(gather.local)}].push_back(gather);
  std::vector<Gathers> all;
  for (const auto& [shape, same] : alike) {
    for (std::size_t i = 0; i < same.size(); ++i) {
      if (i == 0 || same.size() < kFewestTurns) all.emplace_back();
      all.back().loads.push_back(same[i].load);
      all.back().locals.push_back(same[i].local);
    }
  }
  return all;
}

bool is_read(const gradient::TensorGradient& gradient) {
  return !gradient.score.empty() || !gradient.sink.empty();
}

// The walks over scores and sinks that the gradient of a learned tensor sums.
class LearnedWalks {
 public:
  LearnedWalks(const gradient::Derivatives& derivatives, const LearnedTensors& tensors)
      : attention_(derivatives.attention), tensors_(tensors) {}

 protected:
  std::int64_t size(Dim dim) const { return attention_.dims[dim]; }

  Walk score_walk(const Gathers& gathers) const {
    ExpressionWriter writer(attention_);
    begin_scores(writer, attention_, size(Dim::Skv), tensors_.columns, "local");
    Walk walk;
    walk.columns = size(Dim::Skv);
    walk.part_at = fmt::format(
        "    const double cotangent = modified[local * {} + c];\n"
        "    if (cotangent == 0) return false;\n",
        tensors_.columns);
    finish(walk, gathers, writer, {attention_.scale}, "");
    walk.tensors = {"products", "modified"};
    return walk;
  }

  Walk sink_walk(const Gathers& gathers) const {
    ExpressionWriter writer(attention_);
    writer.begin({.batch = true, .head = true, .row = true},
                 {size(Dim::B), size(Dim::Hq), size(Dim::Sq)});
    Walk walk;
    walk.part_at = "    if (lse[local] == -1.0 / 0.0) return false;\n";
    finish(walk, gathers, writer, {*attention_.sink},
           fmt::format("    const double cotangent = -exp({} - lse[local]) * deltas[local];\n"
                       "    if (cotangent == 0) return false;\n",
                       writer.value(*attention_.sink)));
    walk.tensors = {"lse", "deltas"};
    return walk;
  }

  void finish(Walk& walk, const Gathers& gathers, ExpressionWriter& writer,
              std::vector<ExprId> roots, const std::string& cotangent) const {
    const ir::Dag& dag = attention_.dag;
    walk.load = gathers.loads.front();
    walk.turns = static_cast<std::int64_t>(gathers.loads.size());
    if (walk.turns > 1) writer.repeat("turn", gathers.loads.size());
    const std::string derivative = writer.value(gathers.locals);
    for (std::size_t i = 0; i < dag[walk.load].operands.size(); ++i)
      (void)writer.value(operands_of(dag, gathers.loads, i));
    const std::string failure = writer.failure(gathers.loads);
    walk.part_at += writer.statements(4) + cotangent;
    if (!failure.empty()) walk.part_at += fmt::format("    if ({}) return false;\n", failure);
    walk.part_at += fmt::format("    element = {};\n    part = cotangent * {};\n",
                                writer.element(gathers.loads), derivative);
    roots.insert(roots.end(), gathers.locals.begin(), gathers.locals.end());
    // Where an element is, and not its value.
    for (const ExprId load : gathers.loads) {
      const std::vector<ExprId>& indices = dag[load].operands;
      roots.insert(roots.end(), indices.begin(), indices.end());
    }
    walk.inputs = inputs_of(attention_, roots);
  }

  std::string meaning(const char* what, const Walk& walk) const {
    return fmt::format("{} the parts of {}", what, ir::to_source(attention_, walk.load));
  }

  const ir::Attention& attention_;
  const LearnedTensors& tensors_;
};

class Maker : private LearnedWalks {
 public:
  using LearnedWalks::LearnedWalks;

  void add(const gradient::TensorGradient& gradient) {
    const ir::CapturedTensor& tensor = *attention_.find_tensor(gradient.tensor);
    const std::int64_t elements = elements_of(attention_, tensor);
    output_ = "d_" + gradient.tensor;
    if (!is_read(gradient)) return add_zeros(tensor.dtype, elements);
    add_words(elements);
    std::vector<Walk> walks;
    const ir::Dag& dag = attention_.dag;
    for (const Gathers& each : in_turns(dag, gradient.score)) walks.push_back(score_walk(each));
    for (const Gathers& each : in_turns(dag, gradient.sink)) walks.push_back(sink_walk(each));
    const int spare = kBits - parts_bits(gradient);
    for (const Walk& walk : walks) add_largest(walk);
    for (const Walk& walk : walks) add_sum(walk, spare);
    if (!tensors_.tile) return add_result(tensor.dtype, elements, spare);
    add_to_total(elements, spare);
    add_result_of_total(tensor.dtype, elements);
  }

  LearnedSteps take() && { return std::move(made_); }

 private:
  std::int64_t rows() const { return size(Dim::B) * size(Dim::Hq) * size(Dim::Sq); }
  std::string largest() const { return output_ + ".largest"; }
  std::string sums() const { return output_ + ".sums"; }
  std::string total() const { return output_ + ".total"; }

  // The bits of the largest number of parts of an element.
  int parts_bits(const gradient::TensorGradient& gradient) const {
    const std::size_t each = gradient.score.size() * static_cast<std::size_t>(size(Dim::Skv));
    const std::size_t parts = static_cast<std::size_t>(rows()) * (each + gradient.sink.size());
    return static_cast<int>(std::bit_width(parts - 1));
  }

  void add_step(codegen::KernelText kernel, std::int64_t amends = 0) {
    made_.steps.push_back(std::move(kernel).finish(false));
    made_.steps.back().amends = amends;
  }

  void add_zeros(DType dtype, std::int64_t elements) {
    codegen::KernelText kernel;
    kernel.make(output_, dtype, elements, "0: no score depends on it", "out[i] = 0;");
    (tensors_.tile ? made_.after : made_.steps).push_back(std::move(kernel).finish(false));
  }

  // The largest part and the sum of each element and, with tiles, the total; initially 0.
  void add_words(std::int64_t elements) {
    codegen::KernelText kernel;
    const auto add_word = [&](const std::string& name, DType dtype) {
      made_.internals.push_back(plan::internal_tensor(name, dtype, {elements}));
      kernel.make(name, dtype, elements, "0", "out[i] = 0;");
    };
    add_word(largest(), DType::i64);
    add_word(sums(), DType::i64);
    if (tensors_.tile) add_word(total(), DType::f64);
    (tensors_.tile ? made_.before : made_.steps).push_back(std::move(kernel).finish(false));
  }

  void add_largest(const Walk& walk) {
    codegen::KernelText kernel;
    kernel.write(largest(), DType::i64, meaning("the largest of", walk), "largest");
    add_walk(std::move(kernel), walk, "LargestPart", {{"parts.largest", "largest"}});
  }

  void add_sum(const Walk& walk, int spare) {
    codegen::KernelText kernel;
    kernel.write(sums(), DType::i64, meaning("the sum of", walk), "sums");
    kernel.read(largest(), DType::i64, "largest");
    add_walk(std::move(kernel), walk, "SumOfParts",
             {{"parts.largest", "largest"}, {"parts.sums", "sums"}, {"parts.spare", spare}});
  }

  const std::string& tensor_of(const std::string& parameter) const {
    if (parameter == "products") return tensors_.products;
    if (parameter == "modified") return tensors_.modified;
    return parameter == "lse" ? tensors_.lse : tensors_.deltas;
  }

  void add_walk(codegen::KernelText kernel, const Walk& walk, const char* parts,
                std::vector<codegen::Field> fields) {
    const std::optional<RowTile>& tile = tensors_.tile;
    const std::int64_t rows = tile ? tile->all_rows() : size(Dim::Sq);
    const std::int64_t heads = tile ? 1 : size(Dim::B) * size(Dim::Hq);
    const std::int64_t columns = walk.columns * walk.turns;
    const std::int64_t threads = heads * ((rows + kRun - 1) / kRun) * columns;
    fields.insert(fields.end(), {{"threads", threads}, {"rows", rows}, {"columns", columns}});
    kernel.run("learned.cuh", fmt::format("Walk<kernels::{}>", parts), fields,
               fmt::format("[&](long long local, long long c, long long& element, double& part) "
                           "{{\n{}    const long long i = ({}) * {} + c;\n{}    return true;\n  }}",
                           turn_text(walk), tile ? tile->row_text("local") : "local", walk.columns,
                           walk.part_at));
    read_inputs(kernel, walk.inputs);
    for (const std::string& name : walk.tensors) kernel.read(tensor_of(name), DType::f32, name);
    if (tile) kernel.read(tile->first, DType::i64, "first");
    add_step(std::move(kernel), threads);
  }

  // The columns of each turn follow those of the one before.
  static std::string turn_text(const Walk& walk) {
    if (walk.turns == 1) return "";
    return fmt::format("    const int turn = (int)(c / {0});\n    c %= {0};\n", walk.columns);
  }

  static std::string sum_text(int spare) {
    return fmt::format("kernels::sum_of_parts(largest[i], sums[i], {})", spare);
  }

  void add_result(DType dtype, std::int64_t elements, int spare) {
    codegen::KernelText kernel;
    kernel.include("learned.cuh");
    kernel.read(largest(), DType::i64, "largest");
    kernel.read(sums(), DType::i64, "sums");
    kernel.make(output_, dtype, elements, "the sum of the parts",
                fmt::format("out[i] = {};", codegen::element_text(dtype, sum_text(spare))));
    add_step(std::move(kernel));
  }

  // Ends a tile: adds its sums to the total and resets them.
  void add_to_total(std::int64_t elements, int spare) {
    codegen::KernelText kernel;
    kernel.include("learned.cuh");
    kernel.write(total(), DType::f64, "plus the sum of the tile", "total");
    kernel.write(largest(), DType::i64, "0", "largest");
    kernel.write(sums(), DType::i64, "0", "sums");
    kernel.add(
        fmt::format("  if (i >= {} || largest[i] == 0) return;\n  total[i] += {};\n"
                    "  largest[i] = 0;\n  sums[i] = 0;\n",
                    elements, sum_text(spare)));
    add_step(std::move(kernel), elements);
  }

  void add_result_of_total(DType dtype, std::int64_t elements) {
    codegen::KernelText kernel;
    kernel.read(total(), DType::f64, "total");
    kernel.make(output_, dtype, elements, "the sum of the parts",
                fmt::format("out[i] = {};", codegen::element_text(dtype, "total[i]")));
    made_.after.push_back(std::move(kernel).finish(false));
  }

  std::string output_;
  LearnedSteps made_;
};

}  // namespace

std::int64_t elements_of(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  std::int64_t elements = 1;
  for (const ExprId extent : tensor.extents) {
    elements *= *ir::fold_integer(attention.dag, extent, attention.dims);
  }
  return elements;
}

LearnedSteps learned_steps(const gradient::Derivatives& derivatives,
                           const LearnedTensors& tensors) {
  Maker maker(derivatives, tensors);
  for (const gradient::TensorGradient& gradient : derivatives.tensors) maker.add(gradient);
  return std::move(maker).take();
}

std::int64_t learned_bytes(const gradient::Derivatives& derivatives) {
  constexpr std::int64_t kBytes = 24;  // per element: two words and a total
  std::int64_t bytes = 0;
  for (const gradient::TensorGradient& gradient : derivatives.tensors) {
    if (!is_read(gradient)) continue;
    const ir::Attention& attention = derivatives.attention;
    bytes += kBytes * elements_of(attention, *attention.find_tensor(gradient.tensor));
  }
  return bytes;
}

}  // namespace attn::codegen
