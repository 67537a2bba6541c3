#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "runtime/plan/program.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan::program_json_tests {
namespace {

using ::testing::HasSubstr;

TEST(ProgramJson, EveryRandomProgramComesBackWhole) {
  testing::Random random(11);
  for (int round = 0; round < 100; ++round) {
    const Program program = testing::random_program(random);
    const std::string json = to_json(program);
    const Result<Program> back = program_from_json(json);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, program);
    ASSERT_EQ(to_json(*back), json);  // the sign of zero too, which equality ignores
  }
}

TEST(ProgramJson, ControlsComeBack) {
  EXPECT_EQ(*program_from_json(to_json(testing::controlled_program())),
            testing::controlled_program());
}

std::string refusal(const std::function<void(nlohmann::json&)>& change) {
  auto document = nlohmann::json::parse(to_json(testing::sample_program()));
  change(document);
  const Result<Program> program = program_from_json(document.dump());
  return program.ok() ? "accepted" : program.error().message;
}

TEST(ProgramJson, ErrorsNameThePlace) {
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto& j) { j["tensors"][2]["role"] = "friend"; }),
            "$.tensors[2].role: is not a known name");
  EXPECT_EQ(refusal([](auto& j) { j["params"][0]["more"] = 1; }),
            "$.params[0]: \"more\" is not a known member");
  EXPECT_EQ(refusal([](auto& j) { j["steps"][0]["step"] = "merge"; }),
            "$.steps[0].step: is not a known name");
  EXPECT_EQ(refusal([](auto& j) { j["steps"][0]["operands"][2]["constant"] = nullptr; }),
            "$.steps[0].operands[2].constant: expected a number");
  EXPECT_EQ(refusal([](auto& j) { j["steps"][0]["operands"][0]["param"] = "cap"; }),
            "$.steps[0].operands[0]: \"param\" is not a known member");
  EXPECT_EQ(refusal([](auto& j) { j["steps"][0]["graph"]["nodes"][1]["x"] = "q"; }),
            "$.steps[0].graph.nodes[1].x: expected an integer");
}

TEST(ProgramJson, KernelStepsAreReadStrictly) {
  const auto refused = [](const std::function<void(nlohmann::json&)>& change) {
    auto document = nlohmann::json::parse(to_json(testing::kernel_program()));
    change(document["steps"][0]["launches"][0]);
    const Result<Program> program = program_from_json(document.dump());
    return program.ok() ? "accepted" : program.error().message;
  };
  EXPECT_EQ(*program_from_json(to_json(testing::kernel_program())), testing::kernel_program());
  const Program promoting = testing::promoting_plan().program;
  EXPECT_EQ(*program_from_json(to_json(promoting)), promoting);
  EXPECT_EQ(*program_from_json(to_json(testing::bound_program())), testing::bound_program());
  Program overlapping = testing::kernel_program();
  std::get<KernelStep>(overlapping.steps[0]).launches[1].overlaps = true;
  EXPECT_EQ(*program_from_json(to_json(overlapping)), overlapping);
  EXPECT_EQ(refused([](auto& j) {
              j["grid"] = {1, 2};
            }),
            "$.steps[0].launches[0].grid: does not have 3 numbers");
  EXPECT_EQ(refused([](auto& j) {
              j["arguments"][0]["map"] = {{"param", "cap"}};
            }),
            "$.steps[0].launches[0].arguments[0].map: \"tensor\" is missing");
  EXPECT_EQ(refused([](auto& j) {
              j["arguments"][1] = {{"counting", 4}};
            }),
            "$.steps[0].launches[0].arguments[1]: has none of \"tensor\", \"param\", \"constant\", "
            "\"map\", \"stride\"");
  EXPECT_EQ(refused([](auto& j) { j["x"] = 1; }),
            "$.steps[0].launches[0]: \"x\" is not a known member");
}

TEST(ProgramJson, DeriveStepsAreReadStrictly) {
  const auto refused = [](const std::function<void(nlohmann::json&)>& change) {
    auto document = nlohmann::json::parse(to_json(testing::derived_program()));
    change(document);
    const Result<Program> program = program_from_json(document.dump());
    return program.ok() ? "accepted" : program.error().message;
  };
  EXPECT_EQ(*program_from_json(to_json(testing::derived_program())), testing::derived_program());
  Program amending = testing::derived_program();
  std::get<DeriveStep>(amending.steps[1]).amends = 7;
  EXPECT_EQ(*program_from_json(to_json(amending)), amending);
  EXPECT_EQ(refused([](auto& j) { j["steps"][0]["once"] = 1; }),
            "$.steps[0].once: expected true or false");
  EXPECT_EQ(refused([](auto& j) { j["steps"][1]["inputs"][0]["uid"] = 1; }),
            "$.steps[1].inputs[0]: \"uid\" is not a known member");
  EXPECT_EQ(refused([](auto& j) { j["steps"][1]["outputs"][0].erase("expression"); }),
            "$.steps[1].outputs[0]: \"expression\" is missing");
  EXPECT_EQ(refused([](auto& j) { j["steps"][1]["graph"] = 1; }),
            "$.steps[1]: \"graph\" is not a known member");
  EXPECT_EQ(refused([](auto& j) { j["check"]["faults"][0].erase("what"); }),
            "$.check.faults[0]: \"what\" is missing");
  EXPECT_EQ(refused([](auto& j) { j["check"]["inputs"][0]["uid"] = 1; }),
            "$.check.inputs[0]: \"uid\" is not a known member");
  EXPECT_EQ(refused([](auto& j) { j["internals"][1]["role"] = "x"; }),
            "$.internals[1].role: is not a known name");
}

TEST(ProgramJson, InfinitiesAreSpelledOut) {
  const std::string json = to_json(testing::sample_program());
  EXPECT_THAT(json, HasSubstr(R"("constant":"-inf")"));
  EXPECT_THAT(json, HasSubstr(R"("constant":0.3535533905932738)"));
}

}  // namespace
}  // namespace attn::plan::program_json_tests
