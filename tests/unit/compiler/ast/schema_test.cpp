// grammar/attn.schema.json lists what the reader takes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/ast/ast.h"

namespace attn::ast {
namespace {

nlohmann::json schema() {
  std::ifstream file(std::string(ATTN_SOURCE_DIR) + "/grammar/attn.schema.json");
  return nlohmann::json::parse(file);
}

std::set<std::string> strings(const nlohmann::json& list) {
  return list.get<std::set<std::string>>();
}

TEST(Schema, ListsEveryOperator) {
  std::set<std::string> unary, binary, comparisons;
  for (int i = 0; i <= static_cast<int>(Operator::pow); ++i) {
    const auto op = static_cast<Operator>(i);
    (arity(op) == 1 ? unary : binary).emplace(spelling(op));
    if (is_comparison(op)) comparisons.emplace(spelling(op));
  }
  const auto definitions = schema()["$defs"];
  EXPECT_EQ(strings(definitions["unary"]["properties"]["op"]["enum"]), unary);
  EXPECT_EQ(strings(definitions["binary"]["properties"]["op"]["enum"]), binary);
  EXPECT_EQ(strings(definitions["chain"]["properties"]["compare"]["items"]["enum"]), comparisons);
}

TEST(Schema, ListsEveryClause) {
  std::set<std::string> words;
  const nlohmann::json all = schema();
  for (const auto& clause : all["$defs"]["clause"]["oneOf"]) {
    if (clause.contains("required")) words.insert(clause["required"][0].get<std::string>());
  }
  words.insert(all["$defs"]["function"]["required"][0].get<std::string>());
  EXPECT_EQ(words, (std::set<std::string>{
                       "dims",     "dtype",   "layout",  "tensor", "learn",         "param",
                       "let",      "scale",   "score",   "mask",   "sink",          "dropout",
                       "lengths",  "outputs", "align",   "grad",   "deterministic", "normalize",
                       "quantize", "shard",   "weight",  "fn",     "prologue",      "epilogue",
                       "gate",     "branch",  "combine", "values", "gather"}));
}

}  // namespace
}  // namespace attn::ast
