#include "compiler/engines/native/weights_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "compiler/codegen/expression_writer.h"
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

}  // namespace

std::string kinds_of_weights(const ir::Attention& attention) {
  if (attention.is_linear()) return "  static constexpr bool kLinear = true;\n";
  const auto& quotient = attention.quotient;
  if (!quotient) return "";
  return fmt::format("  static constexpr bool kQuotient = true, kExponential = {}, kUnit = {};\n",
                     quotient->exponential, ir::reads_unit(attention));
}

std::string quotient_text(const ir::Attention& attention) {
  const auto& quotient = attention.quotient;
  if (!quotient) return "";
  return fmt::format("  static constexpr bool kHidesScores = {};\n",
                     !masks::is_finite(attention, attention.score)) +
         method_of_term("QuotientParts", "parts", attention, {quotient->f, quotient->g});
}

std::string quotient_slopes_text(const gradient::Derivatives& derivatives) {
  const auto& quotient = derivatives.attention.quotient;
  if (!quotient) return "";
  return method_of_term("QuotientSlopes", "slopes", derivatives.attention,
                        {quotient->f, derivatives.quotient->f, derivatives.quotient->g});
}

}  // namespace attn::engines::native
