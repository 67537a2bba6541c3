#include "runtime/plan/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "tests/unit/runtime/plan/fields.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json document = nlohmann::json::parse(manifest_json(testing::sample_plan()));
  change(document);
  const Result<Manifest> manifest = read_manifest(document.dump());
  if (manifest.ok()) return "accepted";
  EXPECT_EQ(manifest.error().code, ErrorCode::plan_damaged);
  return manifest.error().message;
}

TEST(Manifest, ComesBackButForTheKernels) {
  Plan plan = testing::sample_plan();
  const Result<Manifest> manifest = read_manifest(manifest_json(plan));
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ASSERT_EQ(manifest->parts.size(), 1U);
  EXPECT_EQ(manifest->parts[0].bytes, plan.compiled[0].cudnn_plan.size());
  EXPECT_EQ(manifest->parts[0].hash, hash128(plan.compiled[0].cudnn_plan).to_hex());
  plan.compiled[0].cudnn_plan.clear();
  EXPECT_EQ(manifest->plan, plan);
}

TEST(Manifest, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  for (const int format : {0, 2, 11}) {
    EXPECT_THAT(refusal([format](auto& j) { j["format"] = format; }),
                HasSubstr("$.format: is out of range"));
  }
  EXPECT_THAT(refusal([](auto& j) { j["extra"] = 2; }),
              HasSubstr("\"extra\" is not a known member"));
  EXPECT_THAT(refusal([](auto& j) { j["bindings"].push_back(j["bindings"][0]); }),
              HasSubstr("$.bindings[2].name: occurs twice"));
  EXPECT_THAT(refusal([](auto& j) { j["workspace_bytes"] = 1; }),
              HasSubstr("$.workspace_bytes: is not what the steps need"));
  EXPECT_THAT(refusal([](auto& j) { j["compiled"][0]["workspace_bytes"] = -1; }),
              HasSubstr("$.compiled[0].workspace_bytes: is out of range"));
  EXPECT_THAT(refusal([](auto& j) { j["compiled"][0]["workspace_bytes"] = std::int64_t{1} << 61; }),
              HasSubstr("$.compiled[0].workspace_bytes: is out of range"));
  EXPECT_THAT(refusal([](auto& j) { j["\x1b[31m"] = 2; }),
              HasSubstr("\"\\x1b[31m\" is not a known member"));
  EXPECT_THAT(refusal([](auto& j) { j["compiled"][0]["plan_bytes"] = std::int64_t{1} << 40; }),
              HasSubstr("$.compiled[0].plan_bytes: is out of range"));
  EXPECT_THAT(refusal([](auto& j) { j["compiled"].push_back(j["compiled"][0]); }),
              HasSubstr("1 steps, 2 of them compiled"));
}

// This took 12 s when all nodes were searched for written operands before the program was checked.
TEST(Manifest, ALargeOneIsRefusedQuickly) {
  nlohmann::json document = nlohmann::json::parse(manifest_json(testing::sample_plan()));
  nlohmann::json& step = document["program"]["steps"][0];
  const nlohmann::json node = step["graph"]["nodes"][2], operand = step["operands"][0];
  for (int i = 0; i < 15000; ++i) {
    step["graph"]["nodes"].push_back(node);
    step["operands"].push_back(operand);
  }
  const std::clock_t start = std::clock();
  const Result<Manifest> manifest = read_manifest(document.dump());
  EXPECT_FALSE(manifest.ok());
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 4.0);
}

TEST(Manifest, TheSignatureMustBelongToTheContent) {
  const char* const message = "$.signature: does not match the content";
  EXPECT_THAT(refusal([](auto& j) { j["target"]["sm"] = 80; }), HasSubstr(message));
  EXPECT_THAT(refusal([](auto& j) { j["cudnn_version"] = 92800; }), HasSubstr(message));
  EXPECT_THAT(refusal([](auto& j) { j["program"]["tensors"][0]["alignment"] = 32; }),
              HasSubstr(message));
  EXPECT_THAT(refusal([](auto& j) { j["signature"] = std::string(32, '0'); }), HasSubstr(message));
}

TEST(Manifest, AnInvalidProgramIsRefusedWhateverItsSignature) {
  Plan plan = testing::sample_plan();
  plan.program.tensors[1].dims[0] = 1;  // the graph reads past its end
  const Result<Manifest> manifest = read_manifest(manifest_json(testing::signed_again(plan)));
  ASSERT_FALSE(manifest.ok());
  EXPECT_EQ(manifest.error().code, ErrorCode::plan_damaged);
  EXPECT_THAT(manifest.error().message, HasSubstr("bound to \"k\", which is smaller"));
}

// Dropping any member of any object, at any depth, is detected.
void expect_members_needed(const nlohmann::json& document,
                           const nlohmann::json::json_pointer& place) {
  const nlohmann::json& value = document.at(place);
  for (const auto& [key, member] : value.items()) {
    const auto inner = place / (value.is_array() ? std::to_string(std::stoul(key)) : key);
    if (value.is_object()) {
      nlohmann::json without = document;
      without.at(place).erase(key);
      const bool position = key == "pos";  // for messages only
      EXPECT_EQ(read_manifest(without.dump()).ok(), position) << inner.to_string();
    }
    if (member.is_structured()) expect_members_needed(document, inner);
  }
}

TEST(Manifest, EveryMemberIsNeeded) {
  expect_members_needed(nlohmann::json::parse(manifest_json(testing::sample_plan())),
                        nlohmann::json::json_pointer());
  expect_members_needed(nlohmann::json::parse(manifest_json(testing::derived_plan())),
                        nlohmann::json::json_pointer());
}

// A field that has another value comes back with it, unless that value is refused.
TEST(Manifest, EveryFieldIsStored) {
  std::size_t stored = 0;
  for (Plan plan : {testing::decided_plan(), testing::derived_plan(), testing::kernel_plan(),
                    testing::controlled_plan()}) {
    testing::FieldWalk(plan, [&](const std::string& path) {
      if (path == "program.steps.outputs.size") return;  // a list of one length with another
      const Result<Plan> back = json::parse_members<Plan>(manifest_json(plan));
      if (!back.ok()) {
        EXPECT_THAT(back.error().message, HasSubstr("$."));
        return;
      }
      ++stored;
      Plan wanted = plan;  // but for what sections of the file hold, and the hash of it all
      for (CompiledStep& step : wanted.compiled) step.cudnn_plan.clear();
      wanted.kernels.clear();
      wanted.signature = {};
      EXPECT_EQ(*back, wanted) << path;
    });
  }
  EXPECT_GT(stored, 500U);
}

TEST(Manifest, EveryStepIsCompiled) {
  const auto refused = [](const std::function<void(Plan&)>& change) {
    Plan plan = testing::derived_plan();
    change(plan);
    const Result<Manifest> manifest = read_manifest(manifest_json(testing::signed_again(plan)));
    return manifest.ok() ? "accepted" : manifest.error().message;
  };
  EXPECT_THAT(refused([](Plan& p) { p.kernels.pop_back(); }),
              HasSubstr("3 steps and a check, 3 of them"));
  EXPECT_THAT(refused([](Plan& p) { p.kernels.push_back("x"); }),
              HasSubstr("3 steps and a check, 5 of them"));
  EXPECT_THAT(refused([](Plan& p) { p.compiled.clear(); }),
              HasSubstr("3 steps and a check, 3 of them"));
}

}  // namespace
}  // namespace attn::plan
