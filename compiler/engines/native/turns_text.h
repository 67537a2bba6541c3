// The text of terms that kernels take turn by turn (codegen/turns.h), for classes `Expressions` of
// both directions.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/turns.h"

namespace attn::engines::native {

// More would take too many registers: a thread has some for each of its scores.
inline constexpr std::size_t kMostFeatures = 2;

// A class `Features` and the method that makes it; `writer` has begun. `parameters`: the method's.
std::string features_text(const std::vector<ir::ExprId>& features, const std::string& parameters,
                          codegen::ExpressionWriter& writer);

// The parameters of a method of a turn, and its body, each line indented by `indent` columns.
// `factor`: of its value.
inline constexpr const char* kOfTurn = "int b, int h, int turn, const Features& features";
std::string body_of_turn(const codegen::Family& members, const std::vector<ir::ExprId>& features,
                         codegen::ExpressionWriter& writer, std::size_t indent, double factor = 1);
// A constant, kTurnsOfScore of "score", and a method, term_of_score(..).
std::string terms_text(const std::string& name, const codegen::TurnedSum& sum,
                       const std::vector<ir::ExprId>& features, codegen::ExpressionWriter& writer);

}  // namespace attn::engines::native
