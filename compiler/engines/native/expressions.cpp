#include "compiler/engines/native/expressions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "compiler/codegen/epilogue.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/caches.h"
#include "compiler/engines/native/expression_text.h"
#include "compiler/engines/native/intervals.h"
#include "compiler/engines/native/scoring.h"
#include "compiler/engines/native/turns_text.h"
#include "compiler/engines/native/weights_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/ir/real_function.h"
#include "compiler/masks/axes.h"
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
  if (attention.cache && attention.cache->factor_of_queries)
    roots.push_back(*attention.cache->factor_of_queries);
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

class Text {
 public:
  Text(const ir::Attention& attention, const Expressions& expressions)
      : attention_(attention),
        expressions_(expressions),
        lines_(expressions.modifies ? lines_of(attention_, expressions.scoring.root)
                                    : std::vector<Line>()),
        turns_(turns_of(attention_, expressions)),
        root_(turns_ ? turns_->rest : expressions.scoring.root),
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
      if (expressions_.scoring.silu) text += silu();
      text += lines();
      text += score();
      if (turns_) text += turns();
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
    if (attention_.cache && attention_.cache->factor_of_queries) text += query_factor();
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

  std::string silu() const {
    return fmt::format(
        "  static constexpr bool kSilu = true;\n  static constexpr float kFactor = {};\n",
        literal(*expressions_.scoring.silu));
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
    begin_with_lines();
    if (expressions_.table) writer_.set_value(expressions_.table->load, "entry");
    set_score();
    std::string value = writer_.value(root_);
    if (slopes_) value = fmt::format("fmaf(lines.slope, offset, {})", value);
    return method("float score(" + parameters() +
                      ", float offset, const Lines& lines,\n"
                      "                         float entry, float product)",
                  writer_, value);
  }

  void begin_with_lines() {
    begin();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      writer_.set_value(lines_[i].expression,
                        fmt::format("fmaf(lines.at[{}], offset, lines.at[{}])", 2 * i + 1, 2 * i));
    }
  }

  static std::optional<codegen::TurnedSum> turns_of(ir::Attention& attention,
                                                    const Expressions& expressions) {
    if (!expressions.modifies || expressions.grid || expressions.table) return std::nullopt;
    auto sum = codegen::turned_sum(attention.dag, expressions.scoring.root);
    return sum && sum->features.size() <= kMostFeatures ? std::move(sum) : std::nullopt;
  }

  std::string turns() {
    begin_with_lines();
    const std::string features = features_text(
        turns_->features, parameters() + ", float offset, const Lines& lines", writer_);
    return features + terms_text("score", *turns_, turns_->features, writer_);
  }

  void set_score() {
    if (!expressions_.scoring.scaled) return writer_.set_score("product");
    set_scaled_score(attention_, root_, writer_);
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

  std::string query_factor() {
    writer_.begin({.batch = true, .head = true});
    const std::string value = writer_.value(*attention_.cache->factor_of_queries);
    return method("float query_factor(int b, int h)", writer_, value);
  }

  ir::Attention attention_;  // a copy: slopes are added to its dag
  const Expressions& expressions_;
  std::vector<Line> lines_;
  bool slopes_ = false;  // addends have one
  std::optional<codegen::TurnedSum> turns_;
  ExprId root_;  // of the scoring, but for the terms of turns
  ExpressionWriter writer_;
};

}  // namespace

Expressions expressions_of(const ir::Attention& attention, bool masks, bool table,
                           std::int64_t alignment) {
  Expressions made;
  made.padded = has_padded_keys(attention);
  const std::vector<ExprId> roots = roots_of(attention, masks || made.padded);
  made.modifies = !attention.dag[attention.score].is(Op::score_) || !positive_scale(attention) ||
                  exceeds_unscaled(attention);
  if (made.modifies) made.scoring = scoring_of(attention);
  const bool direct = attention.quotient && !attention.quotient->exponential;
  made.bounded = attention.is_pointwise() || direct ||
                 (made.scoring.bound && *made.scoring.bound <= kMostBound &&
                  product_type(attention) == DType::bf16 && !attention.wants_max_or_sum());
  const bool exponential = made.modifies && made.bounded && attention.is_softmax();
  if (exponential && takes_special_unit(attention.dag, made.scoring.root))
    made.polynomials = kPolynomials;
  made.masks = masks;
  if (masks) made.column_period = column_period(attention);
  if (table && made.modifies) made.table = table_of(attention, made.scoring.root, alignment);
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
