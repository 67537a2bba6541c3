#include "compiler/derive/scores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/derive/check.h"
#include "compiler/derive/emit.h"
#include "compiler/derive/expression_writer.h"

namespace attn::derive {
namespace {

using ir::Dim;
using ir::ExprId;

std::vector<ExprId> roots_of(const ir::Attention& attention) {
  std::vector<ExprId> roots = {attention.scale, attention.score};
  roots.insert(roots.end(), attention.masks.begin(), attention.masks.end());
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  if (attention.sink) roots.push_back(*attention.sink);
  return roots;
}

std::vector<std::string> sources_of(const ir::Attention& attention,
                                    const std::vector<ExprId>& expressions) {
  std::vector<std::string> sources;
  for (const ExprId id : expressions) sources.push_back(ir::to_source(attention, id));
  return sources;
}

class Emitter {
 public:
  Emitter(const ir::Attention& attention, const ScoreTensors& tensors)
      : attention_(attention),
        tensors_(tensors),
        writer_(attention),
        dims_{attention.dims[Dim::B], attention.dims[Dim::Hq], attention.dims[Dim::Sq],
              attention.dims[Dim::Skv]} {}

  plan::DeriveStep step() && {
    KernelInputs inputs = inputs_of(attention_, roots_of(attention_));
    inputs.operands.insert(inputs.operands.begin(), plan::TensorOperand{tensors_.products});
    inputs.parameters.insert(inputs.parameters.begin(), "const float* products");
    if (tensors_.tile) {
      inputs.operands.emplace_back(tensors_.tile->first);
      inputs.parameters.emplace_back(kFirstParameter);
    }
    add_scores();
    if (attention_.dropout && attention_.dropout->keep) add_kept(*attention_.dropout->keep);
    if (attention_.sink) add_sinks(*attention_.sink);
    parameters_.insert(parameters_.end(), inputs.parameters.begin(), inputs.parameters.end());
    step_.inputs = std::move(inputs.operands);
    step_.source = include_text() + kernel_text(plan::kDeriveKernel, parameters_, body_);
    if (tensors_.tile && tensors_.tile->again) step_.amends = threads_;
    return std::move(step_);
  }

 private:
  void add(const std::string& tensor, const char* type, std::string meaning,
           const std::vector<std::int64_t>& dims, const std::string& value) {
    std::int64_t count = 1;
    for (const std::int64_t dim : dims) count *= dim;
    const std::string name = begin_output(tensor, type, std::move(meaning), count);
    body_ += fmt::format(
        "  if (i < {0}) {{\n{1}    {2}[i] = ({3})({4});\n    return;\n  }}\n  i -= {0};\n", count,
        writer_.statements(4), name, type, value);
  }

  // Adds an output; returns its name in the kernel.
  std::string begin_output(const std::string& tensor, const char* type, std::string meaning,
                           std::int64_t count) {
    std::string name = fmt::format("out{}", step_.outputs.size());
    parameters_.push_back(fmt::format("{}* {}", type, name));
    step_.outputs.push_back(tensor);
    step_.expressions.push_back(std::move(meaning));
    threads_ += count;
    return name;
  }

  // Adds an output with one element per score.
  void add_of_scores(const std::string& tensor, const char* type, std::string meaning,
                     const std::string& value) {
    if (!tensors_.tile) return add(tensor, type, std::move(meaning), dims_, value);
    const std::int64_t columns = dims_[3], count = tensors_.tile->all_rows() * columns;
    const std::string name = begin_output(tensor, type, std::move(meaning), count);
    body_ += fmt::format(
        "  if (i < {0}) {{\n    const long long n = i, local = i / {1};\n    {{\n"
        "      const long long whole = {2};\n"
        "      const long long i = whole * {1} + n % {1};\n{3}"
        "      {4}[n] = ({5})({6});\n    }}\n    return;\n  }}\n  i -= {0};\n",
        count, columns, tensors_.tile->row_text("local"), writer_.statements(6), name, type, value);
  }

  void begin() {
    begin_scores(writer_, attention_, dims_[3], tensors_.columns, tensors_.tile ? "local" : "");
  }

  void add_scores() {
    begin();
    std::string visible;
    for (const ExprId mask : attention_.masks) {
      visible += (visible.empty() ? "" : " && ") + writer_.value(mask);
    }
    std::string value = writer_.value(attention_.score);
    if (!visible.empty()) value = fmt::format("{} ? {} : -1.0 / 0.0", visible, value);
    std::string meaning = ir::to_source(attention_, attention_.score);
    if (!visible.empty()) {
      meaning +=
          fmt::format(", where {}", fmt::join(sources_of(attention_, attention_.masks), ", "));
    }
    add_of_scores(tensors_.scores, "float", std::move(meaning), value);
  }

  void add_kept(ExprId keep) {
    begin();
    const std::string value = writer_.value(keep);
    add_of_scores(tensors_.kept, "int", ir::to_source(attention_, keep), value);
  }

  void add_sinks(ExprId sink) {
    writer_.begin({.head = true}, {dims_[1]});
    const std::string value = writer_.value(sink);
    add(tensors_.sinks, "float", ir::to_source(attention_, sink), {dims_[1]}, value);
  }

  const ir::Attention& attention_;
  const ScoreTensors& tensors_;
  ExpressionWriter writer_;
  std::vector<std::int64_t> dims_;
  std::vector<std::string> parameters_;
  std::string body_;
  std::int64_t threads_ = 0;
  plan::DeriveStep step_;
};

}  // namespace

void begin_scores(ExpressionWriter& writer, const ir::Attention& attention, std::int64_t extent,
                  std::int64_t columns, const std::string& row) {
  const ir::Dims& d = attention.dims;
  writer.begin({.batch = true, .head = true, .row = true, .column = true},
               {d[Dim::B], d[Dim::Hq], d[Dim::Sq], extent});
  const std::string place =
      row.empty() ? fmt::format("(((long long)b * {} + h) * {} + row)", d[Dim::Hq], d[Dim::Sq])
                  : row;
  writer.set_score(fmt::format("{} * products[{} * {} + column]", writer.value(attention.scale),
                               place, columns));
}

plan::DeriveStep scores_step(const ir::Attention& attention, const ScoreTensors& tensors) {
  return Emitter(attention, tensors).step();
}

void check_scores(const ir::Attention& attention, plan::Program& program) {
  passes::Hoisted all;
  all.attention = attention;
  for (const ExprId root : roots_of(attention)) {
    passes::DerivedTensor tensor;
    tensor.expression = root;
    all.derived.push_back(std::move(tensor));
  }
  set_check(program, index_check(attention, all));
}

}  // namespace attn::derive
