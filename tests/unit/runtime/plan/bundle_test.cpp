#include "runtime/plan/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/plan/container.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/storage.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_damaged(const std::string& bytes, const char* message) {
  const Result<Bundle> bundle = deserialize_bundle(bytes);
  ASSERT_FALSE(bundle.ok()) << message;
  EXPECT_EQ(bundle.error().code, ErrorCode::plan_damaged);
  EXPECT_THAT(bundle.error().message, HasSubstr(message));
}

TEST(Bundle, OfOnePlanIsThatPlansFile) {
  for (const Plan& plan : {testing::sample_plan(), testing::derived_plan(),
                           testing::controlled_plan(), testing::backward_plan()}) {
    const std::string bytes = serialize(Bundle{{plan}});
    EXPECT_EQ(bytes, serialize(plan));
    const Result<Bundle> back = deserialize_bundle(bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(*back, Bundle{{plan}});
  }
}

TEST(Bundle, ComesBackWholeAndInOrder) {
  const Bundle pair = testing::sample_pair();
  for (const Bundle& bundle : {pair, Bundle{{pair.plans[1], pair.plans[0]}},
                               Bundle{{pair.plans[0], pair.plans[1], testing::sample_plan()}}}) {
    const std::string bytes = serialize(bundle);
    const Result<Bundle> back = deserialize_bundle(bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(*back, bundle);
    EXPECT_EQ(serialize(*back), bytes);
  }
}

Plan for_target(Plan plan, std::int64_t sm, std::string name) {
  plan.target.sm = sm;
  plan.target.name = std::move(name);
  return plan;
}

TEST(Bundle, OfSeveralGpusGivesThoseOfADevice) {
  const Bundle pair = testing::sample_pair();
  Bundle both = pair;
  for (const Plan& plan : pair.plans) both.plans.push_back(for_target(plan, 80, "a100"));
  EXPECT_TRUE(has_one_capability(pair));
  EXPECT_FALSE(has_one_capability(both));
  const std::int64_t sm = pair.plans.front().target.sm;
  EXPECT_EQ(*plans_for_device(both, sm), pair);
  EXPECT_EQ(plan_of(both, Direction::backward, 80)->target.name, "a100");
  EXPECT_THAT(
      plan_of(both, Direction::forward).error().notes,
      ElementsAre(AllOf(HasSubstr("it has: forward for "), HasSubstr("backward for a100"))));
  const Result<Bundle> none = plans_for_device(both, 120);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::plan_device);
  EXPECT_EQ(none.error().message, "the plan file has no plan for this device, which is sm_120");
  EXPECT_THAT(none.error().notes, ElementsAre(HasSubstr("sm_80 (a100)")));
  EXPECT_EQ(*plans_for_device(pair, 120), pair) << "whoever loads it says what it is for";
}

// A family comes back whole, and is refused where plans are read.
TEST(Family, IsNotABundle) {
  const std::string path = ::testing::TempDir() + "family.attnplan";
  const Family family{testing::sample_pair(), R"({"ranks": 2})", "a cubin"};
  ASSERT_TRUE(save(family, path).ok());
  const Result<Family> back = load_family(path);
  ASSERT_TRUE(back.ok()) << back.error().to_text();
  EXPECT_EQ(*back, family);
  const Result<Bundle> bundle = load_bundle(path);
  ASSERT_FALSE(bundle.ok());
  EXPECT_EQ(bundle.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(bundle.error().message, HasSubstr("divided among several GPUs"));
  EXPECT_THAT(bundle.error().notes,
              ::testing::ElementsAre(AllOf(HasSubstr("attn::Distributed::open_file"),
                                           HasSubstr("attn.torch.load_distributed"))));
  ASSERT_TRUE(save(family.parts, path).ok());
  EXPECT_EQ(load_family(path)->ranks, "");
  std::filesystem::remove(path);
}

TEST(Family, IsCheckedBeforeItIsParsed) {
  const auto refuse = [](std::string_view bytes) {
    return bytes == "no plan" ? Status(ErrorCode::mismatch, "not this one") : Status();
  };
  EXPECT_EQ(deserialize_family("no plan", refuse).error().message, "not this one");
  EXPECT_EQ(deserialize_family("another", refuse).error().code, ErrorCode::plan_foreign);
  const std::string path = ::testing::TempDir() + "checked.attnplan";
  ASSERT_TRUE(save(Family{testing::sample_pair(), "{}", "a cubin"}, path).ok());
  const auto refuse_all = [](std::string_view) { return Status(ErrorCode::mismatch, "no"); };
  EXPECT_EQ(load_family(path, refuse_all).error().message, path + ": no");
  EXPECT_EQ(load_family(path, refuse)->kernels, "a cubin");
  std::filesystem::remove(path);
}

// Kernels that move rows are one section, which only files of ranks have.
TEST(Family, HasKernelsOnceAndWithRanks) {
  const std::string plan = serialize(testing::kernel_plan());
  const std::vector<Section> whole = *read_container(plan);
  const auto file = [&](const std::vector<SectionSource>& more) {
    std::vector<SectionSource> sections;
    std::vector<std::string> bytes;
    for (const Section& section : whole) bytes.push_back(*unpack(section, 1 << 20));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      sections.push_back({whole[i].kind, whole[i].packed, false, bytes[i]});
    sections.insert(sections.end(), more.begin(), more.end());
    return write_container(sections);
  };
  const SectionSource ranks{kRanksSection, true, false, "{}"};
  const SectionSource kernels{kRankKernelsSection, true, false, "a cubin"};
  EXPECT_TRUE(deserialize_family(file({ranks, kernels})).ok());
  const auto expect = [&](const std::string& bytes, const char* message) {
    const Result<Family> family = deserialize_family(bytes);
    ASSERT_FALSE(family.ok()) << message;
    EXPECT_EQ(family.error().code, ErrorCode::plan_damaged);
    EXPECT_EQ(family.error().message, message);
  };
  for (const std::string& other : {file({kernels}), file({ranks}), file({ranks, kernels, kernels})})
    expect(other, "the plan file has ranks without their kernels, or such kernels without ranks");
  expect(file({ranks, {kRankKernelsSection, true, false, ""}}), "the kernels for ranks are empty");
  expect(file({ranks, {kRankKernelsSection, false, false, "a cubin"}}),
         "the plan file's section of kind 5 has the wrong flags");
}

// A file of kind 4 with these bytes; small, however many there are of them.
std::string file_of_ranks(const std::string& ranks) {
  return *serialize_within_limits(testing::sample_pair().plans, ranks, "a cubin");
}

TEST(Family, ReadsNoMoreThanBoundedJson) {
  const std::string nested(8 << 20, '[');
  for (const auto& [ranks, message] : std::vector<std::pair<std::string, const char*>>{
           {nested, "it is nested too deeply"},
           {R"({"ranks": )" + nested, "it is nested too deeply"},
           {"{\"of_ranks\": [0" +
                [] {
                  std::string zeros;
                  for (std::size_t i = 0; i < kMaxRanksValues; ++i) zeros += ",0";
                  return zeros;
                }() +
                "]}",
            "there are too many values"},
           {"ranks", "the plan file's ranks: invalid JSON: byte 1:"},
           {R"({"ranks": 2, "ranks": 3})", "a key occurs twice"},
           {"{\"name\": \"\xff\"}", "the plan file's ranks: invalid JSON: byte 11:"},
           {"[2]", "the plan file's ranks are not a JSON object"}}) {
    const Result<Family> family = deserialize_family(file_of_ranks(ranks));
    ASSERT_FALSE(family.ok()) << message;
    EXPECT_EQ(family.error().code, ErrorCode::plan_damaged);
    EXPECT_THAT(family.error().message, HasSubstr(message));
    expect_damaged(file_of_ranks(ranks), message);
  }
  EXPECT_TRUE(deserialize_family(file_of_ranks(R"({"ranks": 2})")).ok());
}

TEST(Bundle, PlansAreFoundByDirection) {
  const Bundle pair = testing::sample_pair();
  EXPECT_EQ(pair.find(Direction::forward), &pair.plans[0]);
  EXPECT_EQ(pair.find(Direction::backward), &pair.plans[1]);
  EXPECT_EQ(Bundle{{pair.plans[0]}}.find(Direction::backward), nullptr);
  const std::string bytes = serialize(pair);
  EXPECT_EQ(*deserialize(bytes), pair.plans[0]);
  EXPECT_EQ(*deserialize(bytes, Direction::backward), pair.plans[1]);
}

TEST(Bundle, ADirectionThatIsNotThereOrTwiceIsAnError) {
  const auto refusal = [](const Bundle& bundle, Direction direction) {
    const Result<Plan> plan = deserialize(serialize(bundle), direction);
    EXPECT_FALSE(plan.ok());
    return plan.error();
  };
  const Bundle pair = testing::sample_pair();
  Error error = refusal({{pair.plans[1]}}, Direction::forward);
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.message, "the plan file has no forward plan");
  EXPECT_THAT(error.notes, ElementsAre("it has: backward"));
  EXPECT_EQ(refusal({{pair.plans[0]}}, Direction::backward).message,
            "the plan file has no backward plan");
  error = refusal({{pair.plans[0], testing::sample_plan(), pair.plans[1]}}, Direction::forward);
  EXPECT_EQ(error.message, "the plan file has 2 forward plans");
  EXPECT_THAT(error.notes, ElementsAre("it has: forward, forward, backward"));
}

// The sample for another length; only its shape differs.
Plan plan_of_length(std::int64_t length) {
  Plan plan = testing::sample_plan();
  plan.shape.sizes.set(Dim::Sq, length);
  plan.cudnn_version += length;  // for another signature
  return plan;
}

TEST(Bundle, PlansAreFoundByTheirSizes) {
  const Bundle lengths{{plan_of_length(3), plan_of_length(8)}};
  EXPECT_EQ(*plans_for(lengths, {}), lengths);
  EXPECT_EQ(*plans_for(lengths, {{Dim::Sq, 8}}), Bundle{{lengths.plans[1]}});
  EXPECT_EQ(plans_for(lengths, {{Dim::B, 2}})->plans.size(), 2U);
  const Result<Bundle> none = plans_for(lengths, {{Dim::B, 2}, {Dim::Sq, 9}});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(none.error().message, "the plan file has no plan for B=2 Sq=9");
  EXPECT_EQ(plans_for({{plan_of_length(3)}}, {{Dim::Skv, 9}}).error().notes[0],
            "it has: forward Skv=5");
}

TEST(Bundle, ItsShapesAreNamedWhereOneIsNeeded) {
  const Bundle lengths{{plan_of_length(3), plan_of_length(8)}};
  EXPECT_TRUE(check_one_shape({{plan_of_length(3)}}).ok());
  EXPECT_TRUE(check_one_shape(testing::sample_pair()).ok());
  const Status several = check_one_shape(lengths);
  ASSERT_FALSE(several.ok());
  EXPECT_EQ(several.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(several.error().message, "the plan file has plans for several sizes of Sq");
  EXPECT_THAT(several.error().notes, ElementsAre("it has: forward Sq=3, forward Sq=8"));
  const Result<Plan> plan = plan_of(lengths, Direction::forward);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().notes, several.error().notes);
}

TEST(Bundle, WhatDoesNotFitAFileIsNotWritten) {
  const std::string path = ::testing::TempDir() + "/many.attnplan";
  Bundle many;
  for (int i = 0; i < 600; ++i) many.plans.push_back(plan_of_length(3));
  const Status saved = save(many, path);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(saved.error().message, "600 plans are too many for one file");
  EXPECT_FALSE(std::filesystem::exists(path));
}

// What the ranks do, and their kernels, are sections too.
TEST(Family, NeedsTwoSectionsMoreThanItsPlans) {
  Bundle bundle;
  std::size_t sections = 0;
  for (std::int64_t i = 1; sections < kMaxSections; ++i) {
    bundle.plans.push_back(plan_of_length(i));
    sections += 1 + bundle.plans.back().compiled.size() + bundle.plans.back().kernels.size();
  }
  ASSERT_EQ(sections, kMaxSections);
  EXPECT_TRUE(fits_file(bundle).ok());
  const std::string path = ::testing::TempDir() + "/full.attnplan";
  const Status saved = save(Family{bundle, R"({"ranks": 2})", "a cubin"}, path);
  ASSERT_FALSE(saved.ok());
  EXPECT_THAT(saved.error().message, HasSubstr("plans are too many for one file"));
}

TEST(Bundle, AManifestOfTooManyValuesIsNeitherWrittenNorRead) {
  Plan plan = testing::sample_plan();
  for (std::size_t i = 0; i < kMaxManifestValues / 3; ++i) plan.bindings[std::to_string(i)] = "1";
  const Result<std::string> file = serialize_within_limits({&plan, 1});
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(file.error().message, HasSubstr("is too large for a file"));
  const Result<Manifest> manifest = read_manifest(manifest_json(plan));
  ASSERT_FALSE(manifest.ok());
  EXPECT_THAT(manifest.error().message, HasSubstr("too many values"));
}

TEST(Bundle, IsSavedAndLoaded) {
  const std::string path = ::testing::TempDir() + "/pair.attnplan";
  const Bundle pair = testing::sample_pair();
  ASSERT_TRUE(save(pair, path).ok());
  EXPECT_EQ(*load_bundle(path), pair);
  EXPECT_EQ(*load(path, Direction::backward), pair.plans[1]);
  ASSERT_TRUE(save(pair.plans[1], path).ok());
  const Result<Plan> forward = load(path);
  ASSERT_FALSE(forward.ok());
  EXPECT_EQ(forward.error().message, path + ": the plan file has no forward plan");
  std::filesystem::remove(path);
}

// The sections of these plans' file, to be combined in other ways than serialize does.
struct Parts {
  Plan forward = testing::sample_plan();
  Plan backward = testing::backward_plan();
  std::string forward_text = manifest_json(forward);
  std::string backward_text = manifest_json(backward);
  SectionSource f{kManifestSection, false, false, forward_text};
  SectionSource b{kManifestSection, false, false, backward_text};
  SectionSource of_f{kCudnnPlanSection, true, false, forward.compiled[0].cudnn_plan};
  SectionSource of_b{kCudnnPlanSection, true, false, backward.compiled[0].cudnn_plan};
};

TEST(Bundle, PartsBelongToManifestsByTheirOrder) {
  const Parts p;
  const Result<Bundle> bundle = deserialize_bundle(write_container({p.f, p.b, p.of_f, p.of_b}));
  ASSERT_TRUE(bundle.ok()) << bundle.error().to_text();
  EXPECT_EQ(*bundle, (Bundle{{p.forward, p.backward}}));
  expect_damaged(write_container({p.f, p.b, p.of_b, p.of_f}), "does not match the manifest");
  expect_damaged(write_container({p.f, p.b, p.of_f}), "1 cuDNN plans for 2 steps");
  expect_damaged(write_container({p.f, p.b, p.of_f, p.of_b, p.of_b}), "3 cuDNN plans for 2 steps");
}

TEST(Bundle, NoPlanIsThereTwice) {
  const Parts p;
  expect_damaged(write_container({p.b, p.b, p.of_b, p.of_b}), "the same plan twice");
}

TEST(Bundle, TheLimitOfManifestsIsThatOfAllTogether) {
  Plan large = testing::sample_plan();
  large.spec_text.assign(kMaxManifestBytes * 2 / 3, 'x');
  Plan backward = testing::backward_plan();
  backward.spec_text = large.spec_text;
  const std::string first = manifest_json(large), second = manifest_json(backward);
  const SectionSource part{kCudnnPlanSection, true, false, large.compiled[0].cudnn_plan};
  EXPECT_TRUE(
      deserialize_bundle(write_container({{kManifestSection, false, false, first}, part})).ok());
  expect_damaged(write_container({{kManifestSection, false, false, first},
                                  {kManifestSection, false, false, second},
                                  part,
                                  part}),
                 "more than the");
}

}  // namespace
}  // namespace attn::plan
