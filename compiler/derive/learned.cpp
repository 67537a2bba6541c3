#include "compiler/derive/learned.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "compiler/derive/emit.h"
#include "compiler/derive/expression_writer.h"
#include "compiler/derive/scores.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::derive {
namespace {

using ir::Dim;
using ir::ExprId;

constexpr std::int64_t kRun = 32;  // rows per thread
constexpr int kBits = 61;          // of a sum

// The bits of non-negative doubles are ordered like the numbers, NaN last.
constexpr const char* kFunctions = R"(
static __device__ void attn_raise(unsigned long long* place, unsigned long long bits) {
  if (bits > *(volatile unsigned long long*)place) atomicMax(place, bits);
}
static __device__ int attn_exponent(unsigned long long bits) { return (int)(bits >> 52) - 1022; }
static __device__ long long attn_fixed(double x, int exponent) {
  return x - x == 0 ? llrint(ldexp(x, exponent)) : 0;
}
)";

constexpr const char* kWalk = R"(
  if (i >= {threads}LL) return;
  const long long c = i % {C}, chunk = i / {C} % {chunks}, head = i / {C} / {chunks};
  const long long last = chunk * {run} + {run} < {Sq} ? chunk * {run} + {run} : {Sq};
  long long held = -1;
  {start}
  for (long long r = chunk * {run}; r < last; ++r) {{
    const long long i = (head * {Sq} + r) * {C} + c;
{before}{statements}{after}    const long long element = {element};
    const double part = cotangent * {local};
    if (element != held) {{
      {flush}
      held = element;
      {restart}
    }}
    {add}
  }}
  {flush}
)";

// Over the rows of a tile, of any heads.
constexpr const char* kWalkInTile = R"(
  if (i >= {threads}LL) return;
  const long long c = i % {C}, chunk = i / {C};
  const long long last = chunk * {run} + {run} < {rows} ? chunk * {run} + {run} : {rows};
  long long held = -1;
  {start}
  for (long long local = chunk * {run}; local < last; ++local) {{
    const long long whole = {row};
    const long long i = whole * {C} + c;
{before}{statements}{after}    const long long element = {element};
    const double part = cotangent * {local};
    if (element != held) {{
      {flush}
      held = element;
      {restart}
    }}
    {add}
  }}
  {flush}
)";

// Text for the parts of the element that a thread accumulates.
struct Pass {
  std::string start, restart, add, flush;
};

// One gather as a loop over scores or rows.
struct Walk {
  ExprId load = 0;
  std::int64_t columns = 1;  // that the loop covers
  std::string before, statements, after, local;
  std::string element;
  KernelInputs inputs;
};

void add_input(KernelInputs& inputs, const std::string& tensor, std::string parameter) {
  inputs.operands.emplace_back(plan::TensorOperand{tensor});
  inputs.parameters.push_back(std::move(parameter));
}

bool is_read(const gradient::TensorGradient& gradient) {
  return !gradient.score.empty() || !gradient.sink.empty();
}

std::int64_t elements_of(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  std::int64_t elements = 1;
  for (const ExprId extent : tensor.extents) {
    elements *= *ir::fold_integer(attention.dag, extent, attention.dims);
  }
  return elements;
}

// C++ text of the sum that element i of `largest` and `sums` represents, or NaN.
std::string sum_text(int spare) {
  return fmt::format(
      "  const bool finite = largest[i] < 0x7ff0000000000000ull;\n"
      "  const int exponent = attn_exponent(largest[i]) - {};\n"
      "  const double sum = finite ? ldexp((double)sums[i], exponent) : 0.0 / 0.0;\n",
      spare);
}

class Maker {
 public:
  Maker(const gradient::Derivatives& derivatives, const LearnedTensors& tensors)
      : attention_(derivatives.attention), tensors_(tensors) {}

  void add(const gradient::TensorGradient& gradient) {
    const ir::CapturedTensor& tensor = *attention_.find_tensor(gradient.tensor);
    const std::int64_t elements = elements_of(attention_, tensor);
    output_ = "d_" + gradient.tensor;
    if (!is_read(gradient)) return add_zeros(tensor.dtype, elements);
    add_words(elements);
    std::vector<Walk> walks;
    for (const gradient::Gather& gather : gradient.score) walks.push_back(score_walk(gather));
    for (const gradient::Gather& gather : gradient.sink) walks.push_back(sink_walk(gather));
    const int spare = kBits - parts_bits(gradient);
    for (const Walk& walk : walks) add_largest(walk);
    for (const Walk& walk : walks) add_sum(walk, spare);
    if (!tensors_.tile) return add_result(tensor.dtype, elements, spare);
    add_to_total(elements, spare);
    add_result_of_total(tensor.dtype, elements);
  }

  LearnedSteps take() && { return std::move(made_); }

 private:
  std::int64_t size(Dim dim) const { return attention_.dims[dim]; }
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

  void add_internal(std::string name, DType dtype, std::int64_t elements) {
    made_.internals.push_back(plan::internal_tensor(std::move(name), dtype, {elements}));
  }

  plan::DeriveStep& add_step(std::vector<std::string> outputs, const std::string& meaning) {
    return add_step(made_.steps, std::move(outputs), meaning);
  }

  static plan::DeriveStep& add_step(std::vector<plan::DeriveStep>& steps,
                                    std::vector<std::string> outputs, const std::string& meaning) {
    plan::DeriveStep& step = steps.emplace_back();
    step.expressions.assign(outputs.size(), meaning);
    step.outputs = std::move(outputs);
    return step;
  }

  void add_zeros(DType dtype, std::int64_t elements) {
    plan::DeriveStep& step =
        add_step(tensors_.tile ? made_.after : made_.steps, {output_}, "0: no score depends on it");
    step.source = kernel_text(plan::kDeriveKernel, {fmt::format("{}* out", element_type(dtype))},
                              fmt::format("  if (i < {}LL) out[i] = 0;\n", elements));
  }

  void add_words(std::int64_t elements) {
    add_internal(largest(), DType::i64, elements);
    add_internal(sums(), DType::i64, elements);
    if (tensors_.tile) return add_words_and_total(elements);
    plan::DeriveStep& step = add_step({largest(), sums()}, "0");
    step.source = kernel_text(
        plan::kDeriveKernel, {"unsigned long long* largest", "unsigned long long* sums"},
        fmt::format("  if (i < {0}LL) {{\n    largest[i] = 0;\n    sums[i] = 0;\n  }}\n",
                    elements));
  }

  void add_words_and_total(std::int64_t elements) {
    add_internal(total(), DType::f64, elements);
    plan::DeriveStep& step = add_step(made_.before, {largest(), sums(), total()}, "0");
    step.source =
        kernel_text(plan::kDeriveKernel,
                    {"unsigned long long* largest", "unsigned long long* sums", "double* total"},
                    fmt::format("  if (i < {0}LL) {{\n    largest[i] = 0;\n    sums[i] = 0;\n"
                                "    total[i] = 0;\n  }}\n",
                                elements));
  }

  Walk score_walk(const gradient::Gather& gather) const {
    ExpressionWriter writer(attention_);
    const bool tiled = tensors_.tile.has_value();
    begin_scores(writer, attention_, size(Dim::Skv), tensors_.columns, tiled ? "local" : "");
    Walk walk;
    walk.columns = size(Dim::Skv);
    walk.before = fmt::format(
        "    const double cotangent = modified[{} * {} + c];\n"
        "    if (cotangent == 0) continue;\n",
        tiled ? "local" : fmt::format("(head * {} + r)", size(Dim::Sq)), tensors_.columns);
    finish(walk, gather, writer, {attention_.scale});
    add_input(walk.inputs, tensors_.products, "const float* products");
    add_input(walk.inputs, tensors_.modified, "const float* modified");
    return walk;
  }

  Walk sink_walk(const gradient::Gather& gather) const {
    ExpressionWriter writer(attention_);
    writer.begin({.batch = true, .head = true, .row = true},
                 {size(Dim::B), size(Dim::Hq), size(Dim::Sq)});
    const char* row = tensors_.tile ? "local" : "i";
    Walk walk;
    walk.before = fmt::format("    if (lse[{}] == -1.0 / 0.0) continue;\n", row);
    walk.after = fmt::format(
        "    const double cotangent = -exp({0} - lse[{1}]) * deltas[{1}];\n"
        "    if (cotangent == 0) continue;\n",
        writer.value(*attention_.sink), row);
    finish(walk, gather, writer, {*attention_.sink});
    add_input(walk.inputs, tensors_.lse, "const float* lse");
    add_input(walk.inputs, tensors_.deltas, "const float* deltas");
    return walk;
  }

  void finish(Walk& walk, const gradient::Gather& gather, ExpressionWriter& writer,
              std::vector<ExprId> roots) const {
    const std::vector<ExprId>& indices = attention_.dag[gather.load].operands;
    walk.load = gather.load;
    walk.local = writer.value(gather.local);
    for (const ExprId index : indices) (void)writer.value(index);
    walk.element = writer.element(gather.load);
    const std::string failure = writer.failure(gather.load);
    walk.statements = writer.statements(4);
    if (!failure.empty()) walk.after += fmt::format("    if ({}) continue;\n", failure);
    roots.push_back(gather.local);
    roots.insert(roots.end(), indices.begin(), indices.end());
    walk.inputs = inputs_of(attention_, roots);
  }

  void add_largest(const Walk& walk) {
    plan::DeriveStep& step = add_step({largest()}, meaning("the largest of", walk));
    write(step, walk, {"unsigned long long* largest"},
          {.start = "unsigned long long top = 0;",
           .restart = "top = 0;",
           .add = "const unsigned long long bits = __double_as_longlong(fabs(part));\n"
                  "    if (bits > top) top = bits;",
           .flush = "if (top != 0) attn_raise(largest + held, top);"});
  }

  void add_sum(const Walk& walk, int spare) {
    plan::DeriveStep& step = add_step({sums()}, meaning("the sum of", walk));
    step.inputs = {plan::TensorOperand{largest()}};
    write(step, walk, {"unsigned long long* sums", "const unsigned long long* largest"},
          {.start = "long long sum = 0;\n  int exponent = 0;",
           .restart =
               fmt::format("sum = 0;\n      exponent = {} - attn_exponent(largest[held]);", spare),
           .add = "sum += attn_fixed(part, exponent);",
           .flush = "if (sum != 0) atomicAdd(sums + held, (unsigned long long)sum);"});
  }

  std::string meaning(const char* what, const Walk& walk) const {
    return fmt::format("{} the parts of {}", what, ir::to_source(attention_, walk.load));
  }

  void write(plan::DeriveStep& step, const Walk& walk, std::vector<std::string> parameters,
             const Pass& pass) const {
    const std::optional<RowTile>& tile = tensors_.tile;
    const std::int64_t rows = tile ? tile->all_rows() : size(Dim::Sq);
    const std::int64_t chunks = (rows + kRun - 1) / kRun;
    step.amends = (tile ? 1 : size(Dim::B) * size(Dim::Hq)) * chunks * walk.columns;
    const std::string body = fmt::format(
        fmt::runtime(tile ? kWalkInTile : kWalk), fmt::arg("threads", step.amends),
        fmt::arg("C", walk.columns), fmt::arg("chunks", chunks), fmt::arg("run", kRun),
        fmt::arg("Sq", size(Dim::Sq)), fmt::arg("rows", rows),
        fmt::arg("row", tile ? tile->row_text("local") : ""), fmt::arg("before", walk.before),
        fmt::arg("statements", walk.statements), fmt::arg("after", walk.after),
        fmt::arg("element", walk.element), fmt::arg("local", walk.local),
        fmt::arg("start", pass.start), fmt::arg("restart", pass.restart), fmt::arg("add", pass.add),
        fmt::arg("flush", pass.flush));
    const KernelInputs& inputs = walk.inputs;
    step.inputs.insert(step.inputs.end(), inputs.operands.begin(), inputs.operands.end());
    parameters.insert(parameters.end(), inputs.parameters.begin(), inputs.parameters.end());
    if (tile) {
      step.inputs.emplace_back(tile->first);
      parameters.emplace_back(kFirstParameter);
    }
    step.source = include_text() + kFunctions + kernel_text(plan::kDeriveKernel, parameters, body);
  }

  void add_result(DType dtype, std::int64_t elements, int spare) {
    plan::DeriveStep& step = add_step({output_}, "the sum of the parts");
    step.inputs = {plan::TensorOperand{largest()}, plan::TensorOperand{sums()}};
    const std::string body = fmt::format("  if (i >= {}LL) return;\n{}  out[i] = {};\n", elements,
                                         sum_text(spare), element_of(dtype, "sum"));
    step.source = narrowing_of(dtype) + kFunctions +
                  kernel_text(plan::kDeriveKernel,
                              {fmt::format("{}* out", element_type(dtype)),
                               "const unsigned long long* largest", "const long long* sums"},
                              body);
  }

  // Ends a tile: adds its sums to the total and resets them.
  void add_to_total(std::int64_t elements, int spare) {
    plan::DeriveStep& step = add_step({total(), largest(), sums()}, "");
    step.expressions = {"plus the sum of the tile", "0", "0"};
    step.amends = elements;
    const std::string body = fmt::format(
        "  if (i >= {}LL || largest[i] == 0) return;\n{}"
        "  total[i] += sum;\n  largest[i] = 0;\n  sums[i] = 0;\n",
        elements, sum_text(spare));
    step.source =
        kFunctions +
        kernel_text(plan::kDeriveKernel,
                    {"double* total", "unsigned long long* largest", "long long* sums"}, body);
  }

  void add_result_of_total(DType dtype, std::int64_t elements) {
    plan::DeriveStep& step = add_step(made_.after, {output_}, "the sum of the parts");
    step.inputs = {plan::TensorOperand{total()}};
    step.source = narrowing_of(dtype) +
                  kernel_text(plan::kDeriveKernel,
                              {fmt::format("{}* out", element_type(dtype)), "const double* total"},
                              fmt::format("  if (i < {}LL) out[i] = {};\n", elements,
                                          element_of(dtype, "total[i]")));
  }

  static bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

  static std::string narrowing_of(DType dtype) {
    return is_narrow(dtype) ? narrowing_text(dtype) : "";
  }

  static std::string element_of(DType dtype, const char* sum) {
    if (is_narrow(dtype)) return fmt::format("attn_narrow((float){})", sum);
    return fmt::format("({}){}", element_type(dtype), sum);
  }

  const ir::Attention& attention_;
  const LearnedTensors& tensors_;
  std::string output_;
  LearnedSteps made_;
};

}  // namespace

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

}  // namespace attn::derive
