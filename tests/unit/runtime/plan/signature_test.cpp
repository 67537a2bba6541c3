#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/unit/runtime/plan/fields.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan::signature_tests {
namespace {

using Change = std::function<void(Plan&)>;

CudnnStep& step(Plan& plan) { return std::get<CudnnStep>(plan.program.steps[0]); }

std::string text_after(const Change& change) {
  Plan plan = testing::sample_plan();
  change(plan);
  return testing::signed_again(plan).signature.text;
}

// Every field of the program, the target and the version, one at a time. (For the fields of graphs
// see Canonical.SeesEveryField.)
std::vector<Change> changes() {
  std::vector<Change> all = {
      [](auto& p) { p.cudnn_version += 1; },
      [](auto& p) { p.nvrtc_version += "13.1"; },
      [](auto& p) { p.nvrtc_version += "13.1\ntarget"; },
      [](auto& p) { p.target.name += "x"; },
      [](auto& p) { p.target.sm += 1; },
      [](auto& p) { p.target.device_json += " "; },
      [](auto& p) { p.program.tensors.pop_back(); },
      [](auto& p) { p.program.params.pop_back(); },
      [](auto& p) { p.program.params[0].name += "x"; },
      [](auto& p) { p.program.params[0].dtype = DType::i32; },
      [](auto& p) { p.program.steps.push_back(p.program.steps[0]); },
      [](auto& p) { p.program.steps.pop_back(); },
      [](auto& p) { step(p).graph.tensors[0].alignment = 32; },
      [](auto& p) { step(p).graph.nodes.pop_back(); },
      [](auto& p) { step(p).operands.pop_back(); },
  };
  for (std::size_t i = 0; i < 5; ++i) {
    all.push_back([i](auto& p) { p.program.tensors[i].name += "x"; });
    all.push_back([i](auto& p) {
      TensorRole& role = p.program.tensors[i].role;
      role = role == TensorRole::captured ? TensorRole::query : TensorRole::captured;
    });
    all.push_back([i](auto& p) { p.program.tensors[i].dtype = DType::i8; });
    all.push_back([i](auto& p) { p.program.tensors[i].alignment *= 2; });
    for (std::size_t d = 0; d < 3; ++d) {
      all.push_back([i, d](auto& p) { p.program.tensors[i].dims[d] += 1; });
      all.push_back([i, d](auto& p) { p.program.tensors[i].strides[d] += 1; });
    }
  }
  for (std::size_t i = 0; i < 8; ++i) {
    all.push_back([i](auto& p) { step(p).operands[i].uid = 6; });
    all.push_back([i](auto& p) { step(p).operands[i].source = TensorOperand{"x"}; });
    all.push_back([i](auto& p) { step(p).operands[i].source = ParamOperand{"x"}; });
    all.push_back([i](auto& p) { step(p).operands[i].source = ConstantOperand{DType::f32, 7}; });
    all.push_back([i](auto& p) { step(p).operands[i].source = ConstantOperand{DType::i32, 7}; });
    all.push_back([i](auto& p) { step(p).operands[i].source = ConstantOperand{DType::f32, 7.5}; });
  }
  return all;
}

// Members that do not affect execution: informational text, and what the compiler made of the rest.
const std::set<std::string> kUnseen = {
    "spec.name",
    "spec.text",
    "bindings",
    "shape.sizes.B",
    "shape.sizes.Hq",
    "shape.sizes.Hkv",
    "shape.sizes.Sq",
    "shape.sizes.Skv",
    "shape.sizes.Dqk",
    "shape.sizes.Dv",
    "shape.padded",
    "shape.padded.size",
    "choice.strategy",
    "choice.predicted_ms",
    "choice.measured_ms",
    "choice.measured_ms.size",
    "choice.refused",
    "choice.signature",
    "choice.size",
    "strategy",
    "without",
    "without.size",
    "parts",
    "parts.size",
    "compiled.heuristic",
    "compiled.engine",
    "compiled.knobs.type",
    "compiled.knobs.value",
    "compiled.knobs.size",
    "compiled.workspace_bytes",
    "compiled.size",
    "program.steps.outputs.expression",
    "program.steps.facts.tile",
    "program.steps.facts.block",
    "program.steps.facts.depth",
    "program.steps.facts.width",
    "program.steps.facts.groups",
    "program.steps.facts.stages",
    "program.steps.facts.items",
    "program.steps.facts.backward",
    "program.steps.facts.launch",
    "program.steps.facts.heads",
    "program.steps.facts.query_stages",
    "program.steps.facts.table_stages",
    "program.steps.facts.parts",
    "program.steps.facts.divided",
    "program.steps.facts.patch_width",
    "program.steps.facts.patch_height",
    "program.steps.facts.has_lengths",
    "program.steps.facts.gathers",
    "program.steps.facts.makes_lists",
    "program.steps.facts.has_band",
    "program.steps.facts.has_schedule",
    "program.steps.facts.lists_of_batch",
    "program.steps.facts.lists_of_head",
    "program.steps.facts.blocks.lists",
    "program.steps.facts.blocks.full",
    "program.steps.facts.blocks.partial",
    "program.steps.facts.blocks.skipped",
    "program.steps.facts.blocks.size",
    "program.steps.facts.size",
    "program.steps.schedule.unshared",
    "program.check.faults.expression",
    "program.check.faults.what",
};

TEST(Signature, SeesEveryFieldThatIsNotListed) {
  std::set<std::string> paths;
  for (Plan plan : {testing::sample_plan(), testing::decided_plan(), testing::derived_plan(),
                    testing::kernel_plan(), testing::controlled_plan(), testing::bound_plan(),
                    testing::scheduled_plan()}) {
    const auto text = [&plan] { return signature_of(plan).text; };
    const std::string original = text();
    testing::FieldWalk(plan, [&](const std::string& path) {
      paths.insert(path);
      EXPECT_EQ(text() == original, kUnseen.contains(path)) << path;
    });
    EXPECT_EQ(text(), original);
  }
  EXPECT_TRUE(std::ranges::includes(paths, kUnseen));
  // One of each alternative of a step and of an operand's source.
  for (const char* path : {"graph", "operands.uid", "operands.tensor", "operands.constant",
                           "operands.param", "outputs", "once", "launches.shared_bytes",
                           "launches.arguments.map.tensor", "launches.arguments.axes",
                           "launches.arguments.stride", "schedule.tensor", "schedule.slots"}) {
    EXPECT_TRUE(paths.contains(std::string("program.steps.") + path)) << path;
  }
}

TEST(Signature, EveryChangeGivesAnotherOne) {
  std::set<std::string> texts = {text_after([](auto&) {})};
  std::set<Hash128> hashes = {testing::sample_plan().signature.hash};
  for (std::size_t i = 0; const Change& change : changes()) {
    const std::string text = text_after(change);
    EXPECT_TRUE(texts.insert(text).second) << i;
    EXPECT_TRUE(hashes.insert(hash128(text)).second) << i;
    ++i;
  }
}

TEST(Signature, SeesWhatIsDerivedButNotItsWords) {
  const auto text = [](const Change& change) {
    Plan plan = testing::derived_plan();
    change(plan);
    return testing::signed_again(plan).signature.text;
  };
  const auto derive = [](Plan& p, std::size_t i) -> DeriveStep& {
    return std::get<DeriveStep>(p.program.steps[i]);
  };
  const std::string original = text([](auto&) {});
  const Change changes[] = {
      [](auto& p) { p.program.internals[0].dims[0] += 1; },
      [](auto& p) { p.program.internals[0].name += "x"; },
      [](auto& p) { p.program.internals.pop_back(); },
      [&](auto& p) { derive(p, 0).once = false; },
      [&](auto& p) { derive(p, 1).outputs[0] = "places"; },
      [&](auto& p) { derive(p, 1).inputs.pop_back(); },
      [&](auto& p) { derive(p, 1).inputs[0] = TensorOperand{"x"}; },
      [&](auto& p) { derive(p, 1).source += "x"; },
      [](auto& p) { p.program.steps.erase(p.program.steps.begin()); },
      [](auto& p) { p.program.check.reset(); },
      [](auto& p) { p.program.check->quick += 1; },
      [](auto& p) { p.program.check->scores[0] += 1; },
      [](auto& p) { p.program.check->inputs.pop_back(); },
      [](auto& p) { p.program.check->source += "x"; },
  };
  std::set<std::string> texts = {original};
  for (const Change& change : changes) EXPECT_TRUE(texts.insert(text(change)).second);
  EXPECT_EQ(text([&](auto& p) { derive(p, 1).expressions[0] += "x"; }), original);
  EXPECT_EQ(text([](auto& p) { p.program.check->faults[0].what += "x"; }), original);
  EXPECT_EQ(text([](auto& p) { p.kernels[0] += "x"; }), original);
}

TEST(Signature, SeesWhatTensorsAreAddressedBy) {
  Plan plan = testing::controlled_plan();
  const std::string original = plan.signature.text;
  plan.program.tensors[0].addressed_by = "page_table";
  EXPECT_NE(testing::signed_again(plan).signature.text, original);
}

TEST(Signature, SeesTheLastBitOfAConstantAndTheSignOfZero) {
  std::set<std::string> texts;
  for (const double value : {0.1, std::nextafter(0.1, 1.0), 0.0, -0.0}) {
    texts.insert(text_after([value](auto& p) {
      step(p).operands[2].source = ConstantOperand{DType::f32, value};
    }));
  }
  EXPECT_EQ(texts.size(), 4U);
}

TEST(Signature, IgnoresWhatDoesNotChangeTheProgram) {
  const std::string original = text_after([](auto&) {});
  const Change irrelevant[] = {
      [](auto& p) { p.spec_name += "x"; },
      [](auto& p) { p.spec_text += "x"; },
      [](auto& p) { p.bindings.clear(); },
      [](auto& p) { p.compiled[0].engine = 77; },
      [](auto& p) { std::ranges::reverse(step(p).operands); },
      [](auto& p) { std::get<graph::Matmul>(step(p).graph.nodes[0]).pos = {}; },
      [](auto& p) { step(p).graph.tensors[5].name += "x"; },
  };
  for (const Change& change : irrelevant) EXPECT_EQ(text_after(change), original);
}

TEST(Signature, IgnoresTheNumbersOfTensors) {
  testing::Random random(13);
  for (int round = 0; round < 50; ++round) {
    Plan plan = testing::sample_plan();
    const std::string original = plan.signature.text;
    const graph::BackendGraph before = step(plan).graph;
    step(plan).graph = graph::testing::disguised(before, random);
    for (Operand& operand : step(plan).operands) {
      operand.uid = graph::testing::counterpart(before, step(plan).graph, operand.uid);
    }
    ASSERT_TRUE(validate(plan.program).ok());
    ASSERT_EQ(testing::signed_again(plan).signature.text, original);
  }
}

TEST(Signature, ANameCannotPoseAsMoreThanAName) {
  const std::string plain = text_after([](auto& p) { p.program.tensors.pop_back(); });
  const std::string line = "stats \"lse\" f32 [2,4,3] strides [12,3,1] align 16";
  const std::string posing = text_after([&line](auto& p) {
    p.program.tensors.pop_back();
    p.program.tensors.back().name += "\"\n" + line;
  });
  EXPECT_NE(posing, text_after([](auto&) {}));
  EXPECT_EQ(std::ranges::count(posing, '\n'), std::ranges::count(plain, '\n'));
}

// Stored in plan files and cache keys, so it may only change with the signature's version.
TEST(Signature, OfTheSampleIsKnown) {
  EXPECT_EQ(testing::sample_plan().signature.hash.to_hex(), "8f139c6b63d3169213fe8ad84d9546c0");
}

}  // namespace
}  // namespace attn::plan::signature_tests
