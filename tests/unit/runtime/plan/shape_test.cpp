#include "runtime/plan/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/plan/manifest.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan::shape_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Sizes, HaveTheWordsOfTheLanguage) {
  for (const Dim dim : kDims) EXPECT_EQ(parse_dim(to_string(dim)), dim);
  EXPECT_FALSE(parse_dim("D").has_value());
  EXPECT_FALSE(parse_dim("sq").has_value());
  EXPECT_EQ(to_text(Sizes{{Dim::Skv, 0}, {Dim::B, 3}}), "B=3 Skv=0");
  const Dim dims[] = {Dim::Sq, Dim::Skv};
  EXPECT_EQ(to_text(Sizes{{Dim::Skv, 7}, {Dim::B, 3}}, dims), "Skv=7");
  EXPECT_EQ(to_text(Sizes()), "");
}

TEST(Sizes, AgreeWhereBothHaveOne) {
  const Sizes all{{Dim::B, 3}, {Dim::Sq, 8}};
  EXPECT_TRUE(agree({}, all));
  EXPECT_TRUE(agree({{Dim::Sq, 8}}, all));
  EXPECT_FALSE(agree({{Dim::Sq, 9}}, all));
  EXPECT_FALSE(agree({{Dim::Skv, 8}}, all)) << "what is not there is no size";
}

TEST(Sizes, VaryWhereNotAllAreTheSame) {
  const Sizes a{{Dim::B, 3}, {Dim::Sq, 8}}, b{{Dim::B, 3}, {Dim::Sq, 9}}, c{{Dim::Sq, 8}};
  EXPECT_THAT(varying(std::vector{a, a}), IsEmpty());
  EXPECT_THAT(varying(std::vector{a, b}), ElementsAre(Dim::Sq));
  EXPECT_THAT(varying(std::vector{a, a, b, c}), ElementsAre(Dim::B, Dim::Sq));
  EXPECT_THAT(varying({}), IsEmpty());
}

std::string refusal(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json document = nlohmann::json::parse(manifest_json(testing::decided_plan()));
  change(document);
  const Result<Manifest> manifest = read_manifest(document.dump());
  if (manifest.ok()) return "accepted";
  EXPECT_EQ(manifest.error().code, ErrorCode::plan_damaged);
  return manifest.error().message;
}

TEST(Shape, ComesBackWithThePlan) {
  const Plan plan = testing::decided_plan();
  const Result<Plan> back = deserialize(serialize(plan));
  ASSERT_TRUE(back.ok()) << back.error().to_text();
  EXPECT_EQ(*back, plan);
  EXPECT_EQ(back->signature, testing::sample_plan().signature);
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
}

TEST(Shape, IsWholeAndThatOfTheProgram) {
  EXPECT_THAT(refusal([](auto& j) { j["shape"]["sizes"].erase("Hkv"); }), HasSubstr("Hkv"));
  EXPECT_THAT(refusal([](auto& j) { j["shape"]["sizes"]["S"] = 1; }),
              HasSubstr("not a known member"));
  EXPECT_THAT(refusal([](auto& j) { j["shape"]["sizes"]["Sq"] = 4; }),
              HasSubstr("$.shape.sizes: do not match q"));
  EXPECT_THAT(refusal([](auto& j) { j["shape"]["sizes"]["Dv"] = 0; }), HasSubstr("out of range"));
  EXPECT_EQ(refusal([](auto& j) { j["shape"]["sizes"]["Skv"] = 0; }), "accepted");
  EXPECT_THAT(refusal([](auto& j) { j["shape"]["padded"] = {"Dv"}; }),
              HasSubstr("$.shape.padded: is not one of B, Sq, Skv in this order"));
  EXPECT_THAT(refusal([](auto& j) {
                j["shape"]["padded"] = {"Skv", "Sq"};
              }),
              HasSubstr("$.shape.padded: "));
  EXPECT_THAT(refusal([](auto& j) {
                j["shape"]["padded"] = {"Sq", "Sq"};
              }),
              HasSubstr("$.shape.padded: "));
  EXPECT_THAT(refusal([](auto& j) { j.erase("shape"); }), HasSubstr("shape"));
}

}  // namespace
}  // namespace attn::plan::shape_tests
