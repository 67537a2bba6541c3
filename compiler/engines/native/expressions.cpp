#include "compiler/engines/native/expressions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "compiler/codegen/epilogue.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/intervals.h"
#include "compiler/engines/native/scoring.h"
#include "compiler/engines/native/weights_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/ir/real_function.h"
#include "compiler/ir/text.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/padding.h"
#include "compiler/masks/real_range.h"
#include "compiler/rewrite/hoist.h"

namespace attn::engines::native {
namespace {

// Each takes two registers: those of the terms of a loop would be too many.
constexpr std::size_t kMostLines = 8;

// Measured, where each score has a tanh: the exponentials, of 16, that are polynomials.
constexpr int kPolynomials = 2;

// Sums of e^50 over 2^24 keys, times values of 10^9, are in the range of f32 and bf16.
constexpr double kMostBound = 50;

using codegen::ExpressionWriter;
using ir::Dim;
using ir::ExprId;
using ir::Op;

std::vector<ExprId> roots_of(const ir::Attention& attention, bool masks) {
  std::vector<ExprId> roots = {attention.scale, attention.score};
  if (masks) roots.insert(roots.end(), attention.masks.begin(), attention.masks.end());
  if (attention.sink) roots.push_back(*attention.sink);
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  return roots;
}

bool reads_by_column(const ir::Attention& attention, const std::vector<ExprId>& roots,
                     const std::optional<Table>& table) {
  masks::Dependence dependence(attention.dag);
  return std::ranges::any_of(ir::reachable(attention.dag, roots), [&](ExprId id) {
    const bool copied = table && table->load == id;
    return attention.dag[id].is(Op::load_) && dependence[id].column && !copied;
  });
}

bool reads_by_index(const ir::Attention& attention, const std::vector<ExprId>& roots,
                    const std::optional<Table>& table) {
  masks::Dependence dependence(attention.dag);
  return std::ranges::any_of(ir::reachable(attention.dag, roots), [&](ExprId id) {
    const bool copied = table && table->load == id;
    return attention.dag[id].is(Op::load_) && (dependence[id].row || dependence[id].column) &&
           !copied;
  });
}

// What the node divides the column by, or 1.
std::int64_t divisor_of_column(const ir::Dag& dag, const ir::Node& node) {
  if (!node.is(Op::floordiv_) && !node.is(Op::mod_)) return 1;
  const ExprId by = node.operands[1];
  const bool found = dag[node.operands[0]].is(Op::column_) && dag[by].is(Op::const_int_);
  return found ? dag.integer_of(by) : 1;
}

std::int64_t column_period(const ir::Attention& attention) {
  constexpr std::int64_t kMost = 64;  // half of the keys of a block
  std::int64_t period = kCell;
  for (const ExprId id : ir::reachable(attention.dag, attention.masks)) {
    const std::int64_t by = divisor_of_column(attention.dag, attention.dag[id]);
    if (by <= period || by > kMost) continue;
    if (std::has_single_bit(static_cast<std::uint64_t>(by))) period = by;
  }
  return period;
}

// Whether each score takes the special-function unit: besides its exponential.
bool takes_special_unit(const ir::Dag& dag, ExprId root) {
  masks::Dependence dependence(dag);
  std::set<ExprId> varying;  // with each score
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    const ir::Node& node = dag[id];
    const bool varies =
        node.is(Op::score_) || dependence[id].both_sides() ||
        std::ranges::any_of(node.operands, [&](ExprId x) { return varying.contains(x); });
    if (!varies) continue;
    varying.insert(id);
    if (node.is(Op::div_) && !dag.is_constant(node.operands[1])) return true;
    if (ir::find_real_function(node.op) != nullptr) return true;
  }
  return false;
}

void add_tensor(const ir::Attention& attention, std::string_view name, const char* type,
                codegen::KernelInputs& inputs) {
  const auto is_it = [&](const plan::OperandSource& source) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&source);
    return tensor != nullptr && tensor->name == name;
  };
  if (!attention.find_tensor(name) || std::ranges::any_of(inputs.operands, is_it)) return;
  inputs.operands.emplace_back(plan::TensorOperand{std::string(name)});
  inputs.parameters.push_back(fmt::format("const {}* t_{}", type, name));
}

bool is_zero(const ir::Dag& dag, ExprId id) {
  return dag[id].is(Op::const_real_) && dag.real_of(id) == 0;
}

void add_random_controls(codegen::KernelInputs& inputs) {
  for (const char* name : {kSeed, kOffset}) {
    inputs.operands.emplace_back(plan::TensorOperand{name});
    inputs.parameters.push_back(fmt::format("const long long* t_{}", name));
  }
}

// A method whose body is the writer's statements.
std::string method(const std::string& head, const ExpressionWriter& writer,
                   const std::string& value) {
  return fmt::format("  __device__ {} const {{\n{}    return {};\n  }}\n", head,
                     writer.statements(4), value);
}

std::string float_literal(double value) { return ir::real_text(value) + "f"; }

constexpr const char* kIndices = "int b, int h, int row, int column";

std::string mask_method(const char* name, const std::vector<ExprId>& terms,
                        const std::string& parameters, ExpressionWriter& writer) {
  std::string value;
  for (const ExprId term : terms) value += (value.empty() ? "" : " && ") + writer.value(term);
  return method(fmt::format("bool {}({})", name, parameters), writer,
                value.empty() ? "true" : value);
}

// A size, or the length where it is shorter.
std::string length_method(const char* name, std::string_view lengths, bool has, std::int64_t size) {
  const std::string value =
      has ? fmt::format("::min(t_{}[b], {})", lengths, size) : std::to_string(size);
  return fmt::format("  __device__ int {}(int b) const {{ return {}; }}\n", name, value);
}

// Whether a length of a batch is more than there is, or less than none.
std::string beyond_method(const ir::Attention& attention) {
  std::string value;
  for (const auto& [has, name, dim] : {std::tuple(attention.lengths_kv, ir::kLengthsKv, Dim::Skv),
                                       std::tuple(attention.lengths_q, ir::kLengthsQ, Dim::Sq)}) {
    if (!has) continue;
    value += fmt::format("{}kernels::is_beyond(t_{}, b, {})", value.empty() ? "" : " || ", name,
                         attention.dims[dim]);
  }
  if (value.empty()) return "";
  return fmt::format("  __device__ bool beyond(int b) const {{ return {}; }}\n", value);
}

// What `all` has too, or less: only those that masks show which are padding.
std::string used_method(const char* all, const masks::Padding* padding,
                        std::optional<ExprId> masks::Padding::*length) {
  const std::string head = fmt::format("int used_{}(int b)", all);
  if (padding == nullptr || !(padding->*length))
    return fmt::format("  __device__ {} const {{ return {}(b); }}\n", head, all);
  ExpressionWriter writer(padding->attention, {}, codegen::Precision::in_single);
  writer.begin({.batch = true});
  const std::string value = writer.value(*(padding->*length));
  return method(head, writer, fmt::format("::min({}, {}(b))", value, all));
}

std::optional<masks::Padding> padding_of(const ir::Attention& attention) {
  return attention.masks.empty() ? std::nullopt : masks::padding(attention, {});
}

std::string lengths_text(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  const std::optional<masks::Padding> found = padding_of(attention);
  const masks::Padding* padding = found ? &*found : nullptr;
  return length_method("keys", ir::kLengthsKv, attention.lengths_kv, d[Dim::Skv]) +
         length_method("queries", ir::kLengthsQ, attention.lengths_q, d[Dim::Sq]) +
         used_method("keys", padding, &masks::Padding::columns) +
         used_method("queries", padding, &masks::Padding::rows);
}

double kept_scale(const ir::Attention& attention) {
  return attention.dropout ? 1 / (1 - attention.dropout->exact_probability()) : 1;
}

std::string keep_method(const ir::Attention& attention, const std::string& parameters,
                        ExpressionWriter& writer) {
  const std::string value = writer.value(*attention.dropout->keep);
  return method("bool keep(" + parameters + ")", writer, value);
}

// The text of random dropout.
std::string random_text(const ir::Attention& attention, ExpressionWriter& writer) {
  const auto& origin = attention.dropout->origin;
  std::string text = fmt::format(
      "  static constexpr int kDropped = {};\n"
      "  static constexpr bool kIsPart = {};\n"
      "  __device__ const long long* seed() const {{ return t_{}; }}\n"
      "  __device__ const long long* offset() const {{ return t_{}; }}\n",
      attention.dropout->dropped(), origin.has_value(), kSeed, kOffset);
  if (!origin) return text;
  const auto add = [&](const char* head, masks::Axes axes, ExprId id) {
    writer.begin(axes);
    const std::string value = writer.value(id);
    text += method(head, writer, value);
  };
  add("int drawn_head(int h)", {.head = true}, origin->head);
  add("int drawn_row(int row)", {.row = true}, origin->row);
  add("int drawn_column(int column)", {.column = true}, origin->column);
  return text;
}

void add_controls(const ir::Attention& attention, codegen::KernelInputs& inputs) {
  if (attention.lengths_q) add_tensor(attention, ir::kLengthsQ, "int", inputs);
  if (attention.lengths_kv) add_tensor(attention, ir::kLengthsKv, "int", inputs);
  for (const ir::Scale& scale : ir::kScales) {
    if (attention.has(scale) && !scale.backward) add_tensor(attention, scale.name, "float", inputs);
  }
  if (attention.is_random()) add_random_controls(inputs);
}

// Lengths of packed sequences are read where they begin, so that no kernel before derives them.
void read_starts(const ir::Attention& attention, codegen::KernelInputs& inputs) {
  const auto replace = [&](const char* tensor, std::string_view lengths, const char* starts,
                           Dim dim) {
    if (addressed_by(attention, tensor) != starts) return;
    for (std::size_t i = 0; i < inputs.operands.size(); ++i) {
      if (*plan::name_of(inputs.operands[i]) != lengths) continue;
      inputs.operands[i] = plan::TensorOperand{starts};
      inputs.parameters[i] =
          fmt::format("const kernels::PackedLengths<{}> t_{}", attention.dims[dim], lengths);
    }
  };
  for (const char* tensor : {"q", "o"}) replace(tensor, ir::kLengthsQ, kRowStarts, Dim::Sq);
  for (const char* tensor : {"k", "v"}) replace(tensor, ir::kLengthsKv, kColumnStarts, Dim::Skv);
}

// The score of a block of statements is `product` times the scale. Constant factors of the score
// and the scale are one. 8-bit floats have scales that are known at run time: the kernel has
// multiplied their product (Text::scale).
void set_scaled_score(const ir::Attention& attention, ExprId root, ExpressionWriter& writer) {
  const bool has_scale = attention.quantize.has_value();
  writer.set_score(has_scale ? "product" : "product * " + writer.value(attention.scale));
  const auto scale = has_scale ? std::optional(1.0) : positive_scale(attention);
  if (!scale) return;
  const ir::Dag& dag = attention.dag;
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    const ir::Node& node = dag[id];
    if (!node.is(Op::mul_) && !node.is(Op::div_)) continue;
    const ExprId x = node.operands[0], y = node.operands[1];
    if (!dag[x].is(Op::score_) || !dag[y].is(Op::const_real_)) continue;
    const double factor = node.is(Op::mul_) ? dag.real_of(y) : 1 / dag.real_of(y);
    // Neither may a factor become 0: a hidden product is -inf.
    const auto whole = static_cast<float>(std::abs(*scale * factor));
    if (!std::isfinite(whole) || whole < std::numeric_limits<float>::min()) continue;
    writer.set_value(id, fmt::format("(product * {})", float_literal(*scale * factor)));
  }
}

class Text {
 public:
  Text(const ir::Attention& attention, const Expressions& expressions)
      : attention_(attention),
        expressions_(expressions),
        lines_(expressions.modifies ? lines_of(attention_, expressions.scoring.root)
                                    : std::vector<Line>()),
        writer_(attention_, {}, codegen::Precision::in_single) {}

  std::string make(bool intervals, const std::optional<ClosedBand>& band) && {
    if (lines_.size() > kMostLines) lines_.clear();
    const MaskTerms terms = terms_of_masks(attention_);
    const bool by_indices = intervals && expressions_.masks && terms.differ() &&
                            intervals_decide(attention_, terms.by_tensors);
    std::string text = "struct Expressions : kernels::Reals {\n" + constants(by_indices);
    for (const std::string& field : expressions_.inputs.parameters) text += "  " + field + ";\n";
    if (attention_.quantize) text += scale();
    text += weight();
    if (expressions_.modifies) {
      text += lines();
      text += score();
    }
    text += forward_weights_text(attention_);
    if (attention_.epilogue) text += codegen::epilogue_text(attention_);
    if (expressions_.masks) text += mask("mask", attention_.masks);
    if (by_indices) text += mask("mask_by_indices", terms.by_indices);
    if (attention_.is_random())
      text += random_text(attention_, writer_);
    else if (attention_.dropout)
      text += keep();
    if (attention_.sink) text += sink();
    text += lengths_text(attention_) + beyond_method(attention_);
    if (intervals) text += intervals_text(attention_);
    if (band) text += band->text;
    return text + "};\n";
  }

 private:
  // `by_indices`: whether blocks may need the masks alone that read no tensors.
  std::string constants(bool by_indices) const {
    const auto& dropout = attention_.dropout;
    return fmt::format(
        "  static constexpr bool kScore = {}, kBounded = {}, kMask = {}, kKeep = {}, kSink = {};\n"
        "  static constexpr bool kReadsColumns = {}, kRandom = {}, kSigmoid = {};\n"
        "{}  static constexpr bool kMasksByIndices = {};\n"
        "  static constexpr int kColumnPeriod = {}, kPolynomials = {};\n"
        "  static constexpr float kKeptScale = {};\n",
        expressions_.modifies, expressions_.bounded, expressions_.masks, dropout && dropout->keep,
        attention_.sink.has_value(), expressions_.reads_columns, attention_.is_random(),
        attention_.is_sigmoid(), kinds_of_weights(attention_), by_indices,
        expressions_.column_period, expressions_.polynomials, kept_scale(attention_));
  }

  // The indices of a score. In a grid, rows and columns are places.
  std::string parameters() const {
    const char* index = expressions_.grid ? "kernels::Place" : "int";
    return fmt::format("int b, int h, {0} row, {0} column", index);
  }

  void begin() {
    writer_.begin({true, true, true, true});
    if (!expressions_.grid) return;
    for (const GridValue& value : expressions_.grid->values) {
      writer_.set_value(value.expression, value.text);
    }
  }

  // What scores have to be multiplied by. Not 0, as descaling factors may be: hidden scores are
  // -inf, and others must only become small.
  std::string weight() {
    writer_.begin({});
    const std::string value = expressions_.modifies ? literal(expressions_.scoring.weight)
                              : attention_.quantize ? "scale() == 0 ? 1e-30f : scale()"
                                                    : writer_.value(attention_.scale);
    return method("float weight()", writer_, value);
  }

  // What products of 8-bit floats have to be multiplied by.
  std::string scale() {
    writer_.begin({});
    const std::string value = writer_.value(attention_.scale);
    return method("float scale()", writer_, value + " * (*t_descale_q * *t_descale_k)");
  }

  static std::string literal(double value) { return float_literal(value); }

  // The sum of addends at a column and its slope, then the values of lines and their slopes.
  std::string lines() {
    std::string shift, slope;
    std::vector<std::string> values;
    begin();
    for (const Addend& addend : expressions_.scoring.addends) {
      const ExprId of = *slope_of(attention_, addend.expression);
      shift += signed_value(addend, addend.expression);
      if (!is_zero(attention_.dag, of)) slope += signed_value(addend, of);
    }
    slopes_ = !slope.empty();
    for (const Line& line : lines_) {
      values.push_back(writer_.value(line.expression));
      values.push_back(writer_.value(line.slope));
    }
    const std::string fields =
        lines_.empty() ? "" : fmt::format("    float at[{}];\n", values.size());
    const std::string at = lines_.empty() ? "" : fmt::format(", {{{}}}", fmt::join(values, ", "));
    return fmt::format("  struct Lines {{\n    float shift, slope;\n{}  }};\n", fields) +
           method("Lines lines(" + parameters() + ")", writer_,
                  fmt::format("Lines{{{}, {}{}}}", sum_of(shift), sum_of(slope), at));
  }

  std::string signed_value(const Addend& addend, ExprId id) {
    return (addend.negative ? " - " : " + ") + writer_.value(id);
  }

  std::string sum_of(const std::string& terms) const {
    if (terms.empty()) return "0.0f";
    return fmt::format("(0.0f{}) * {}", terms, literal(expressions_.scoring.addend_factor));
  }

  // `offset`: of the column from that of the lines; `entry`: the table's element.
  std::string score() {
    begin();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      writer_.set_value(lines_[i].expression,
                        fmt::format("fmaf(lines.at[{}], offset, lines.at[{}])", 2 * i + 1, 2 * i));
    }
    if (expressions_.table) writer_.set_value(expressions_.table->load, "entry");
    set_score();
    std::string value = writer_.value(expressions_.scoring.root);
    if (slopes_) value = fmt::format("fmaf(lines.slope, offset, {})", value);
    return method("float score(" + parameters() +
                      ", float offset, const Lines& lines,\n"
                      "                         float entry, float product)",
                  writer_, value);
  }

  void set_score() {
    if (!expressions_.scoring.scaled) return writer_.set_score("product");
    set_scaled_score(attention_, expressions_.scoring.root, writer_);
  }

  std::string mask(const char* name, const std::vector<ExprId>& terms) {
    begin();
    return mask_method(name, terms, parameters(), writer_);
  }

  std::string keep() {
    begin();
    return keep_method(attention_, parameters(), writer_);
  }

  std::string sink() {
    writer_.begin({.head = true});
    const std::string value = writer_.value(*attention_.sink);
    return method("float sink(int h)", writer_, value);
  }

  ir::Attention attention_;  // a copy: slopes are added to its dag
  const Expressions& expressions_;
  std::vector<Line> lines_;
  bool slopes_ = false;  // addends have one
  ExpressionWriter writer_;
};

class GradientText {
 public:
  GradientText(const gradient::Derivatives& derivatives, const GradientExpressions& expressions)
      : attention_(derivatives.attention),
        slope_(derivatives.score),
        slope_factor_(constant_slope(derivatives)),
        scoring_(without_factors(attention_)),
        quotient_slopes_(quotient_slopes_text(derivatives)),
        expressions_(expressions),
        writer_(attention_, {}, codegen::Precision::in_single) {}

  std::string make(bool intervals, const std::optional<ClosedBand>& band) && {
    std::string text = fmt::format(
        "struct Expressions : kernels::Reals {{\n"
        "  static constexpr bool kScore = {}, kMask = {}, kReadsTensors = {}, kFiniteSlope = {};\n"
        "  static constexpr bool kKeep = {}, kRandom = {}, kSigmoid = {};\n"
        "{}  static constexpr int kParts = {}, kHeld = {};\n"
        "  static constexpr float kKeptScale = {};\n",
        expressions_.modifies, expressions_.masks, expressions_.reads_tensors,
        expressions_.finite_slope, attention_.dropout && attention_.dropout->keep,
        attention_.is_random(), attention_.is_sigmoid(), kinds_of_weights(attention_),
        expressions_.parts.size(), std::ranges::count_if(expressions_.parts, &LearnedPart::held),
        kept_scale(attention_));
    for (const std::string& field : expressions_.inputs.parameters) text += "  " + field + ";\n";
    text += scale();
    text += expressions_.modifies ? evaluate() : "";
    text += quotient_slopes_;
    if (!expressions_.parts.empty()) text += learned();
    text += expressions_.masks ? mask() : "";
    if (attention_.is_random())
      text += random_text(attention_, writer_);
    else if (attention_.dropout)
      text += keep();
    text += lengths_text(attention_);
    if (intervals) text += intervals_text(attention_);
    if (band) text += band->text;
    return text + "};\n";
  }

 private:
  // What gradients of q and k are multiplied by, and what products or modified scores are.
  std::string scale() {
    writer_.begin({});
    const std::string scale = writer_.value(attention_.scale);
    return method("float scale()", writer_, scale) +
           fmt::format("  __device__ float weight() const {{ return {}; }}\n",
                       expressions_.modifies ? float_literal(scoring_.weight) : "scale()");
  }

  std::string evaluate() {
    begin();
    set_scaled_score(attention_, attention_.score, writer_);
    if (expressions_.table) writer_.set_value(expressions_.table->load, "entry");
    const std::string score = writer_.value(scoring_.root), slope = writer_.value(slope_);
    std::string type = "kernels::Scored";
    std::string values = fmt::format("(float)({}), (float)({})", score, slope);
    std::vector<std::string> by;
    for (const LearnedPart& part : expressions_.parts) {
      if (part.held) by.push_back(fmt::format("(float)({})", writer_.value(part.gather.local)));
    }
    if (!by.empty()) {
      type = fmt::format("kernels::ScoredBy<{}>", by.size());
      values = fmt::format("{{{}}}, {{{}}}", values, fmt::join(by, ", "));
    }
    return method(fmt::format("{} evaluate({}, float entry, float product)", type, kIndices),
                  writer_, fmt::format("{}{{{}}}", type, values));
  }

  // Text of kLearned, and for each part which element a score reads, and the factor of its dS'.
  std::string learned() {
    std::vector<std::string> parts;
    std::string element, local, store;
    int held = 0;
    for (std::size_t i = 0; i < expressions_.parts.size(); ++i) {
      const LearnedPart& part = expressions_.parts[i];
      const std::string& tensor = attention_.dag.symbol_of(part.gather.load);
      parts.push_back(fmt::format("{{kernels::Reach::{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}",
                                  name_of(part.reach), part.held ? held++ : -1, part.finite,
                                  part.place, part.elements, part.bits, part.row, part.column,
                                  part.turns(), part.is_long));
      element += case_of(i, element_of(part));
      if (!part.held) local += case_of(i, local_of(part));
      if (part.reach == Reach::own) store += case_of(i, store_of(tensor));
    }
    return fmt::format("  static constexpr kernels::LearnedPart kLearned[] = {{\n      {}}};\n",
                       fmt::join(parts, ",\n      ")) +
           of_part(fmt::format("long long element({}, int turn) const", kIndices), element) +
           of_part(fmt::format("float local({}, int turn) const", kIndices), local) +
           of_part("static void store(void* gradient, long long i, float x)", store);
  }

  static std::string of_part(const std::string& head, const std::string& cases) {
    const bool is_static = head.starts_with("static ");
    return fmt::format("  template <int kPart>\n  {}__device__ {} {{\n{}  }}\n",
                       is_static ? "static " : "", is_static ? head.substr(7) : head, cases);
  }
  static std::string case_of(std::size_t part, const std::string& statements) {
    return fmt::format("    if constexpr (kPart == {}) {{\n{}    }}\n", part, statements);
  }

  std::string element_of(const LearnedPart& part) {
    begin(part);
    const std::size_t indices = attention_.dag[part.gather.load].operands.size();
    for (std::size_t i = 0; i < indices; ++i) {
      (void)writer_.value(codegen::operands_of(attention_.dag, part.loads, i));
    }
    const std::string failure = writer_.failure(part.loads), element = writer_.element(part.loads);
    return writer_.statements(6) +
           fmt::format("      return {}{};\n",
                       failure.empty() ? "" : failure + " ? -1 : ", element);
  }

  std::string local_of(const LearnedPart& part) {
    begin(part);
    const std::string local = writer_.value(part.locals);
    const double factor = 1 / *slope_factor_;
    return writer_.statements(6) +
           fmt::format("      return {} * {};\n", float_literal(factor), local);
  }

  std::string store_of(const std::string& tensor) const {
    const DType dtype = attention_.find_tensor(tensor)->dtype;
    return fmt::format("      static_cast<{}*>(gradient)[i] = {};\n", codegen::element_type(dtype),
                       codegen::element_text(dtype, "x"));
  }

  std::string mask() {
    begin();
    return mask_method("mask", attention_.masks, kIndices, writer_);
  }

  std::string keep() {
    begin();
    return keep_method(attention_, kIndices, writer_);
  }

  void begin() { writer_.begin({true, true, true, true}); }
  void begin(const LearnedPart& part) {
    begin();
    if (part.turns() > 1) writer_.repeat("turn", part.loads.size());
  }

  const ir::Attention& attention_;
  const ExprId slope_;
  const std::optional<double> slope_factor_;
  const Scoring scoring_;
  const std::string quotient_slopes_;
  const GradientExpressions& expressions_;
  ExpressionWriter writer_;
};

}  // namespace

GradientExpressions gradient_expressions_of(const gradient::Derivatives& derivatives, bool masks,
                                            bool table) {
  const ir::Attention& attention = derivatives.attention;
  GradientExpressions made;
  made.modifies = !attention.dag[attention.score].is(Op::score_) || !positive_scale(attention);
  made.masks = masks;
  if (made.modifies && table) made.table = table_of(attention, attention.score);
  if (made.table && made.table->element != 2) made.table.reset();
  std::vector<ExprId> roots = {attention.scale}, others;
  if (made.modifies) roots.insert(roots.end(), {attention.score, derivatives.score});
  made.parts = learned_parts(derivatives);
  for (const LearnedPart& part : made.parts) {
    roots.insert(roots.end(), {part.gather.load, part.gather.local});
  }
  made.padded = has_padding(attention);
  if (masks || made.padded) others = attention.masks;
  if (attention.dropout && attention.dropout->keep) others.push_back(*attention.dropout->keep);
  made.reads_tensors = reads_by_index(attention, roots, made.table) ||
                       reads_by_index(attention, others, std::nullopt);
  roots.insert(roots.end(), others.begin(), others.end());
  made.finite_slope = masks::is_finite(attention, derivatives.score, masks::Score::infinite);
  made.inputs = codegen::inputs_of(attention, roots);
  add_controls(attention, made.inputs);
  return made;
}

std::string gradient_expressions_text(const gradient::Derivatives& derivatives,
                                      const GradientExpressions& expressions, bool intervals,
                                      const std::optional<ClosedBand>& band) {
  return GradientText(derivatives, expressions).make(intervals, band);
}

Expressions expressions_of(const ir::Attention& attention, bool masks, bool table) {
  Expressions made;
  made.padded = has_padded_keys(attention);
  const std::vector<ExprId> roots = roots_of(attention, masks || made.padded);
  made.modifies = !attention.dag[attention.score].is(Op::score_) || !positive_scale(attention) ||
                  exceeds_unscaled(attention);
  if (made.modifies) made.scoring = scoring_of(attention);
  const bool direct = attention.quotient && !attention.quotient->exponential;
  made.bounded = attention.is_pointwise() || direct ||
                 (made.scoring.bound && *made.scoring.bound <= kMostBound &&
                  attention.dtype == DType::bf16 && !attention.wants_max_or_sum());
  const bool exponential = made.modifies && made.bounded && attention.is_softmax();
  if (exponential && takes_special_unit(attention.dag, made.scoring.root))
    made.polynomials = kPolynomials;
  made.masks = masks;
  if (masks) made.column_period = column_period(attention);
  if (table && made.modifies) made.table = table_of(attention, made.scoring.root);
  made.reads_columns = reads_by_column(attention, roots, made.table);
  std::vector<ExprId> read = roots;
  if (attention.epilogue) read.push_back(*attention.epilogue);
  made.inputs = codegen::inputs_of(attention, read);
  add_controls(attention, made.inputs);
  read_starts(attention, made.inputs);
  return made;
}

bool has_padded_keys(const ir::Attention& attention) {
  const auto padding = padding_of(attention);
  return padding && padding->columns;
}

bool has_padding(const ir::Attention& attention) { return padding_of(attention).has_value(); }

bool masks_read_inputs(const ir::Attention& attention) {
  return std::ranges::any_of(ir::reachable(attention.dag, attention.masks), [&](ExprId id) {
    return attention.dag[id].is(Op::load_) || attention.dag[id].is(Op::param_);
  });
}

MaskTerms terms_of_masks(const ir::Attention& attention) {
  const ir::Dag& dag = attention.dag;
  const auto reads = [&dag](ExprId term) {
    const ExprId roots[] = {term};
    return std::ranges::any_of(ir::reachable(dag, roots),
                               [&dag](ExprId id) { return dag[id].is(Op::load_); });
  };
  MaskTerms terms;
  std::vector<ExprId> left(attention.masks.rbegin(), attention.masks.rend());
  while (!left.empty()) {
    const ExprId term = left.back();
    left.pop_back();
    if (dag[term].is(Op::and_)) {
      left.insert(left.end(), dag[term].operands.rbegin(), dag[term].operands.rend());
      continue;
    }
    (reads(term) ? terms.by_tensors : terms.by_indices).push_back(term);
  }
  return terms;
}

std::string expressions_text(const ir::Attention& attention, const Expressions& expressions,
                             bool intervals, const std::optional<ClosedBand>& band) {
  return Text(attention, expressions).make(intervals, band);
}

}  // namespace attn::engines::native
