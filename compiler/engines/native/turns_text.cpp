#include "compiler/engines/native/turns_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "compiler/ir/text.h"

namespace attn::engines::native {

namespace {

std::string capitalized(std::string word) {
  word[0] = static_cast<char>(std::toupper(word[0]));
  return word;
}

}  // namespace

using codegen::ExpressionWriter;
using codegen::Family;
using ir::ExprId;

std::string features_text(const std::vector<ExprId>& features, const std::string& parameters,
                          ExpressionWriter& writer) {
  std::vector<std::string> values;
  for (const ExprId id : features) values.push_back(writer.value(id));
  return fmt::format(
      "  static constexpr int kFeatures = {0};\n"
      "  struct Features {{\n    float of[{0}];\n  }};\n"
      "  __device__ Features features({1}) const {{\n{2}    return Features{{{{{3}}}}};\n  }}\n",
      features.size(), parameters, writer.statements(4), fmt::join(values, ", "));
}

std::string body_of_turn(const Family& members, const std::vector<ExprId>& features,
                         ExpressionWriter& writer, std::size_t indent, double factor) {
  writer.begin({true, true, true, true});
  writer.repeat("turn", members.size());
  for (std::size_t i = 0; i < features.size(); ++i)
    writer.set_value(features[i], fmt::format("features.of[{}]", i));
  const std::string value = writer.value(members);
  return fmt::format("{}{:{}}return {}f * {};\n", writer.statements(indent), "", indent,
                     ir::real_text(factor), value);
}

std::string terms_text(const std::string& name, const codegen::TurnedSum& sum,
                       const std::vector<ExprId>& features, ExpressionWriter& writer) {
  return fmt::format(
      "  static constexpr int kTurnsOf{} = {};\n  __device__ float term_of_{}({}) const {{\n{}  "
      "}}\n",
      capitalized(name), sum.terms.size(), name, kOfTurn,
      body_of_turn(sum.terms, features, writer, 4));
}

}  // namespace attn::engines::native
