#include "compiler/codegen/scores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/codegen/check.h"
#include "compiler/codegen/emit.h"
#include "compiler/codegen/expression_writer.h"

namespace attn::codegen {
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
    add_scores();
    if (attention_.dropout && attention_.dropout->keep) add_kept(*attention_.dropout->keep);
    if (attention_.sink) add_sinks(*attention_.sink);
    kernel_.read(tensors_.products, DType::f32, "products");
    read_inputs(kernel_, inputs_of(attention_, roots_of(attention_)));
    if (tensors_.tile) kernel_.read(tensors_.tile->first, DType::i64, "first");
    plan::DeriveStep step = std::move(kernel_).finish(false);
    if (tensors_.tile && tensors_.tile->again) step.amends = threads_;
    return step;
  }

 private:
  void make(const std::string& tensor, DType dtype, std::int64_t count, std::string meaning,
            const std::string& text) {
    threads_ += count;
    kernel_.make(tensor, dtype, count, std::move(meaning), text);
  }

  // Adds an output with one element per score.
  void add_of_scores(const std::string& tensor, DType dtype, std::string meaning,
                     const std::string& value) {
    const std::int64_t rows =
        tensors_.tile ? tensors_.tile->all_rows() : dims_[0] * dims_[1] * dims_[2];
    make(tensor, dtype, rows * dims_[3], std::move(meaning),
         of_score(writer_, tensors_.tile, dims_[3], codegen::element_text(dtype, value)));
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
    add_of_scores(tensors_.scores, DType::f32, std::move(meaning), value);
  }

  void add_kept(ExprId keep) {
    begin();
    const std::string value = writer_.value(keep);
    add_of_scores(tensors_.kept, DType::i32, ir::to_source(attention_, keep), value);
  }

  void add_sinks(ExprId sink) {
    writer_.begin({.head = true}, {dims_[1]});
    const std::string value = writer_.value(sink);
    make(tensors_.sinks, DType::f32, dims_[1], ir::to_source(attention_, sink),
         with_statements(writer_, fmt::format("out[i] = (float)({});", value)));
  }

  const ir::Attention& attention_;
  const ScoreTensors& tensors_;
  ExpressionWriter writer_;
  std::vector<std::int64_t> dims_;
  codegen::KernelText kernel_;
  std::int64_t threads_ = 0;
};

}  // namespace

std::string RowTile::row_text(const std::string& local) const {
  return fmt::format("{0} / {1} * {2} + first[0] + {0} % {1}", local, rows, group_rows);
}

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

std::string of_score(const ExpressionWriter& writer, const std::optional<RowTile>& tile,
                     std::int64_t columns, const std::string& value) {
  if (!tile) return with_statements(writer, fmt::format("out[i] = {};", value));
  return fmt::format(
      "const long long n = i, local = i / {0};\n    {{\n"
      "      const long long whole = {1};\n      const long long i = whole * {0} + n % {0};\n"
      "{2}      out[n] = {3};\n    }}",
      columns, tile->row_text("local"), writer.statements(6), value);
}

plan::DeriveStep scores_step(const ir::Attention& attention, const ScoreTensors& tensors) {
  return Emitter(attention, tensors).step();
}

void check_scores(const ir::Attention& attention, plan::Program& program) {
  rewrite::Hoisted all;
  all.attention = attention;
  for (const ExprId root : roots_of(attention)) {
    rewrite::DerivedTensor tensor;
    tensor.expression = root;
    all.derived.push_back(std::move(tensor));
  }
  set_check(program, index_check(attention, all));
}

using ir::Dim;

plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors) {
  const ir::Attention& attention = derivatives.attention;
  const ir::Dims& d = attention.dims;
  ExpressionWriter writer(attention);
  const std::optional<RowTile>& tile = tensors.tile;
  begin_scores(writer, attention, tensors.columns, tensors.columns, tile ? "local" : "");
  const std::string local = writer.value(derivatives.score);
  const std::string scale = writer.value(attention.scale);
  const std::int64_t rows = tile ? tile->all_rows() : d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  const std::string value =
      codegen::element_text(attention.dtype, fmt::format("cotangent * {} * {}", local, scale));
  codegen::KernelText kernel;
  kernel.make(
      tensors.gradients, attention.dtype, rows * tensors.columns,
      fmt::format("dS' * ({}) * scale", ir::to_source(attention, derivatives.score)),
      fmt::format("const double cotangent = i % {} < {} ? modified[i] : 0;\n"
                  "    if (cotangent == 0) {{\n      out[i] = 0;\n      return;\n    }}\n    ",
                  tensors.columns, d[Dim::Skv]) +
          of_score(writer, tile, tensors.columns, value));
  kernel.read(tensors.products, DType::f32, "products");
  kernel.read(tensors.modified, DType::f32, "modified");
  read_inputs(kernel, inputs_of(attention, {attention.scale, derivatives.score}));
  if (tile) kernel.read(tile->first, DType::i64, "first");
  plan::DeriveStep step = std::move(kernel).finish(false);
  if (tile && tile->again) step.amends = rows * tensors.columns;
  return step;
}

}  // namespace attn::codegen
