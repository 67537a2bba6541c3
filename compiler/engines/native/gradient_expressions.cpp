#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <set>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/expression_text.h"
#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/intervals.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/native/scoring.h"
#include "compiler/engines/native/turns_text.h"
#include "compiler/engines/native/weights_text.h"
#include "compiler/masks/real_range.h"

namespace attn::engines::native {
namespace {

using codegen::ExpressionWriter;
using ir::ExprId;
using ir::Op;

class GradientText {
 public:
  GradientText(const gradient::Derivatives& derivatives, const GradientExpressions& expressions)
      : attention_(derivatives.attention),
        slope_(derivatives.score),
        slope_factor_(constant_slope(derivatives)),
        scoring_(without_factors(attention_)),
        quotient_slopes_(quotient_slopes_text(derivatives)),
        expressions_(expressions),
        turns_(turns_of(attention_, expressions, scoring_.root)),
        sum_(sum_of_parts()),
        features_(features_of_turns()),
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
    if (!features_.empty()) text += features();
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
    if (attention_.quantize) return scales_of_8_bits(scale);
    return method("float scale()", writer_, scale) +
           fmt::format("  __device__ float weight() const {{ return {}; }}\n",
                       expressions_.modifies ? float_literal(scoring_.weight) : "scale()");
  }

  // Scores that are hidden are -inf, and others must only become small, so that what they are
  // multiplied by is never 0.
  std::string scales_of_8_bits(const std::string& scale) const {
    const std::string weight =
        expressions_.modifies ? float_literal(scoring_.weight) : "scale() == 0 ? 1e-30f : scale()";
    return method("float scale_of_attention()", writer_, scale) +
           "  __device__ float scale() const {\n"
           "    return scale_of_attention() * (*t_descale_q * *t_descale_k);\n  }\n" +
           fmt::format("  __device__ float weight() const {{ return {}; }}\n", weight) +
           factors_of_gradients_text(attention_);
  }

  std::string evaluate() {
    begin();
    set_scaled_score(attention_, attention_.score, writer_);
    if (expressions_.table) writer_.set_value(expressions_.table->load, "entry");
    const std::string score = writer_.value(turns_ ? turns_->rest : scoring_.root);
    const std::string slope = writer_.value(slope_);
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

  // Scores of which no table is read.
  static std::optional<codegen::TurnedSum> turns_of(ir::Attention& attention,
                                                    const GradientExpressions& expressions,
                                                    ExprId root) {
    if (!expressions.modifies || expressions.table) return std::nullopt;
    auto sum = codegen::turned_sum(attention.dag, root);
    return sum && sum->features.size() <= kMostFeatures ? std::move(sum) : std::nullopt;
  }

  // A sum that local derivatives have.
  struct SumOfParts {
    ExprId root;
    codegen::TurnedSum terms;
  };
  std::optional<SumOfParts> sum_of_parts() {
    for (const LearnedPart& part : expressions_.parts) {
      if (part.held || part.turns() > 1) continue;
      const ExprId roots[] = {part.gather.local};
      const std::vector<ExprId> below = ir::reachable(attention_.dag, roots);
      for (const ExprId id : below | std::views::reverse) {
        auto terms = codegen::turned_sum(attention_.dag, id);
        if (terms && is_zero(attention_.dag, terms->rest)) return SumOfParts{id, *terms};
      }
    }
    return std::nullopt;
  }

  // What terms of the score, and what local derivatives in turns, follow from; empty if neither is
  // so, or that is too much.
  std::vector<ExprId> features_of_turns() {
    std::set<ExprId> all;
    if (turns_) all.insert(turns_->features.begin(), turns_->features.end());
    if (sum_) all.insert(sum_->terms.features.begin(), sum_->terms.features.end());
    for (const LearnedPart& part : expressions_.parts) {
      if (part.turns() == 1) continue;
      const auto found = codegen::features_of(attention_.dag, part.locals);
      if (!found) return only_of_score();
      all.insert(found->begin(), found->end());
    }
    const std::vector<ExprId> features = codegen::independent(attention_.dag, all);
    if (features.size() > kMostFeatures) return only_of_score();
    by_features_ = true;
    return features;
  }
  std::vector<ExprId> only_of_score() {
    sum_.reset();
    return turns_ ? turns_->features : std::vector<ExprId>();
  }

  std::string features() {
    begin();
    std::string text = fmt::format("  static constexpr bool kByFeatures = {};\n", by_features_) +
                       features_text(features_, kIndices, writer_);
    if (turns_) text += terms_text("score", *turns_, features_, writer_);
    if (sum_) text += terms_text("parts", sum_->terms, features_, writer_);
    return text;
  }

  // Text of kLearned, and for each part which element a score reads, and the factor of its dS'.
  std::string learned() {
    std::vector<std::string> parts;
    std::string element, local, by_features, store;
    int held = 0;
    for (std::size_t i = 0; i < expressions_.parts.size(); ++i) {
      const LearnedPart& part = expressions_.parts[i];
      const std::string& tensor = attention_.dag.symbol_of(part.gather.load);
      parts.push_back(fmt::format("{{kernels::Reach::{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}",
                                  name_of(part.reach), part.held ? held++ : -1, part.finite,
                                  part.place, part.elements, part.bits, part.row, part.column,
                                  part.turns(), part.is_long));
      element += case_of(i, element_of(part));
      if (by_features_ && part.turns() > 1)
        by_features += case_of(i, local_by_features(part));
      else if (!part.held)
        local += case_of(i, local_of(part));
      if (part.reach == Reach::own) store += case_of(i, store_of(tensor));
    }
    return fmt::format("  static constexpr kernels::LearnedPart kLearned[] = {{\n      {}}};\n",
                       fmt::join(parts, ",\n      ")) +
           of_part(fmt::format("long long element({}, int turn) const", kIndices), element) +
           of_part(fmt::format("float local({}, int turn, float sum) const", kIndices), local) +
           (by_features.empty()
                ? ""
                : of_part(fmt::format("float local_by({}) const", kOfTurn), by_features)) +
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
    if (sum_) writer_.set_value(sum_->root, "sum");
    const std::string local = writer_.value(part.locals);
    const double factor = 1 / *slope_factor_;
    return writer_.statements(6) +
           fmt::format("      return {} * {};\n", float_literal(factor), local);
  }

  std::string local_by_features(const LearnedPart& part) {
    return body_of_turn(part.locals, features_, writer_, 6, 1 / *slope_factor_);
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

  ir::Attention attention_;  // a copy: what turns leave is added to its dag
  const ExprId slope_;
  const std::optional<double> slope_factor_;
  const Scoring scoring_;
  const std::string quotient_slopes_;
  const GradientExpressions& expressions_;
  const std::optional<codegen::TurnedSum> turns_;
  std::optional<SumOfParts> sum_;
  bool by_features_ = false;  // parts in turns have features
  const std::vector<ExprId> features_;
  ExpressionWriter writer_;
};

}  // namespace

GradientExpressions gradient_expressions_of(const gradient::Derivatives& derivatives, bool masks,
                                            const std::optional<Table>& table) {
  const ir::Attention& attention = derivatives.attention;
  GradientExpressions made;
  made.modifies = !attention.dag[attention.score].is(Op::score_) || !positive_scale(attention);
  made.masks = masks;
  if (made.modifies && table && table->element == 2) made.table = table;
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
  add_controls(attention, made.inputs, false);
  if (attention.quantize) add_scales_of_gradients(attention, made.inputs);
  return made;
}

std::string gradient_expressions_text(const gradient::Derivatives& derivatives,
                                      const GradientExpressions& expressions, bool intervals,
                                      const std::optional<ClosedBand>& band) {
  return GradientText(derivatives, expressions).make(intervals, band);
}

}  // namespace attn::engines::native
