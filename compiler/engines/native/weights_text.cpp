#include "compiler/engines/native/weights_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/ir/parts.h"
#include "compiler/ir/text.h"
#include "compiler/masks/real_range.h"

namespace attn::engines::native {
namespace {

// A method of the term and the unit.
std::string method_of_term(const char* type, const char* name, const ir::Attention& attention,
                           std::initializer_list<ir::ExprId> of) {
  codegen::ExpressionWriter writer(attention, {}, codegen::Precision::in_single);
  writer.begin({});
  writer.set_score("term");
  std::vector<std::string> values;
  for (const ir::ExprId id : of) values.push_back(fmt::format("(float)({})", writer.value(id)));
  return fmt::format(
      "  __device__ kernels::{0} {1}(float term, float unit) const {{\n{2}"
      "    return kernels::{0}{{{3}}};\n  }}\n",
      type, name, writer.statements(4), fmt::join(values, ", "));
}

// Whether a weight may be -inf, by the form of its expression.
class MayBeLeast {
 public:
  explicit MayBeLeast(const ir::Dag& dag) : dag_(dag) {}

  bool of(ir::ExprId id) const {
    using ir::Op;
    const ir::Node& node = dag_[id];
    const auto operand = [&](std::size_t i) { return of(node.operands[i]); };
    switch (node.op) {
      case Op::const_real_: return dag_.real_of(id) == -masks::kInfinity;
      case Op::to_real_:
      case Op::abs_:
      case Op::exp_:
      case Op::exp2_:
      case Op::sigmoid_:
      case Op::tanh_:
      case Op::sqrt_: return false;
      case Op::max_: return operand(0) && operand(1);
      case Op::min_: return operand(0) || operand(1);
      case Op::select_: return operand(1) || operand(2);
      case Op::div_: return !is_positive(node.operands[1]) || operand(0);
      case Op::mul_: return may_product_be(node);
      default: return true;
    }
  }

 private:
  // A square is not negative, and -inf times its sigmoid, which is 0, is NaN.
  bool may_product_be(const ir::Node& node) const {
    const ir::ExprId a = node.operands[0], b = node.operands[1];
    if (a == b || is_sigmoid_of(a, b) || is_sigmoid_of(b, a)) return false;
    return !((is_positive(a) && !of(b)) || (is_positive(b) && !of(a)));
  }

  bool is_sigmoid_of(ir::ExprId id, ir::ExprId x) const {
    return dag_[id].is(ir::Op::sigmoid_) && dag_[id].operands[0] == x;
  }
  bool is_positive(ir::ExprId id) const {
    const auto value = ir::fold_real(dag_, id);
    return value && *value > 0;
  }

  const ir::Dag& dag_;
};

bool may_hide_scores(const ir::Attention& attention) {
  if (masks::is_finite(attention, attention.score)) return false;
  return !attention.is_linear() || MayBeLeast(attention.dag).of(attention.score);
}

// What numerators in f16 are divided by, and rows of o multiplied by: a power of 2 that makes the
// largest of a row about 1, so that none exceeds f16, nor is lost in it.
double factor_of_parts(const ir::Attention& attention) {
  if (attention.dtype != DType::f16 || !attention.quotient->exponential) return 1;
  constexpr std::pair<double, double> kPlaces[] = {{1, 0}, {1, 0.5}, {1, 1}, {0.5, 1}, {0, 1}};
  double most = 0;
  for (const auto& [term, unit] : kPlaces) {
    const auto value = ir::value_of_part(attention.dag, attention.quotient->f, term, unit);
    most = std::max(most, std::abs(value.value_or(0)));
  }
  return most == 0 ? 1 : std::exp2(std::ceil(std::log2(most)));
}

}  // namespace

std::string kinds_of_weights(const ir::Attention& attention) {
  if (attention.is_linear()) return "  static constexpr bool kLinear = true;\n";
  const auto& quotient = attention.quotient;
  if (!quotient) return "";
  return fmt::format("  static constexpr bool kQuotient = true, kExponential = {}, kUnit = {};\n",
                     quotient->exponential, ir::reads_unit(attention));
}

std::string forward_weights_text(const ir::Attention& attention) {
  const auto& quotient = attention.quotient;
  if (!quotient && !attention.is_linear()) return "";
  const std::string hides =
      fmt::format("  static constexpr bool kHidesScores = {};\n", may_hide_scores(attention));
  if (!quotient) return hides;
  return hides +
         fmt::format("  static constexpr float kFactorOfParts = {}f;\n",
                     ir::real_text(factor_of_parts(attention))) +
         method_of_term("QuotientParts", "parts", attention, {quotient->f, quotient->g});
}

std::string quotient_slopes_text(const gradient::Derivatives& derivatives) {
  const auto& quotient = derivatives.attention.quotient;
  if (!quotient) return "";
  return method_of_term("QuotientSlopes", "slopes", derivatives.attention,
                        {quotient->f, derivatives.quotient->f, derivatives.quotient->g});
}

}  // namespace attn::engines::native
