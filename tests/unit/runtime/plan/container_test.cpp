#include "runtime/plan/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using ::testing::HasSubstr;

std::string with_number(std::string bytes, std::size_t offset, std::size_t width,
                        std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes[offset + i] = static_cast<char>(value >> (8 * i));
  return testing::resealed(bytes);
}

// The sample's file: header at 0, entries of manifest at 64 and cuDNN plan at 128.
std::string sample() { return serialize(testing::sample_plan()); }

void expect_error(const std::string& bytes, ErrorCode code, const char* message) {
  const Result<Plan> plan = deserialize(bytes);
  ASSERT_FALSE(plan.ok()) << message;
  EXPECT_EQ(plan.error().code, code) << plan.error().message;
  EXPECT_THAT(plan.error().message, HasSubstr(message));
}

TEST(Container, ResealingAGoodFileChangesNothing) {
  EXPECT_EQ(testing::resealed(sample()), sample());
}

TEST(Container, NewerVersionsAreSaidToBeNewer) {
  expect_error(with_number(sample(), 8, 4, kFormatVersion + 1), ErrorCode::plan_newer,
               "format version 2");
  expect_error(with_number(sample(), 8, 4, 0xFFFFFFFF), ErrorCode::plan_newer, "4294967295");
  expect_error(with_number(sample(), 8, 4, 0), ErrorCode::plan_damaged, "format version 0");
}

// Files from before the first release, whatever their version and however little is left of them.
TEST(Container, DevelopmentVersionsAreSaidToBeThat) {
  std::string old = sample();
  old[3] = 'N';
  for (const int version : {1, 4, 10, 11, 12}) {
    old[8] = static_cast<char>(version);
    for (const std::size_t length : {std::size_t{4}, std::size_t{8}, std::size_t{64}, old.size()}) {
      const Result<Plan> plan = deserialize(std::string_view(old).substr(0, length));
      ASSERT_FALSE(plan.ok());
      EXPECT_EQ(plan.error().code, ErrorCode::plan_foreign) << length;
      EXPECT_THAT(plan.error().message, HasSubstr("a development version"));
      EXPECT_THAT(plan.error().notes[0], HasSubstr("compile the spec again"));
      EXPECT_EQ(deserialize_family(std::string_view(old).substr(0, length)).error().code,
                ErrorCode::plan_foreign);
    }
  }
  EXPECT_EQ(announced_bytes(old).error().code, ErrorCode::plan_foreign);
  EXPECT_TRUE(begins_plan(old)) << "it is no spec either";
  EXPECT_FALSE(begins_plan(old.substr(1)));
}

TEST(Container, LengthsAndCountsAreCheckedBeforeUse) {
  const auto damaged = ErrorCode::plan_damaged;
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  expect_error(with_number(sample(), 12, 4, 0xFFFFFFFF), damaged, "gives 4294967295 sections");
  expect_error(with_number(sample(), 12, 4, 0), damaged, "bytes outside all sections");
  expect_error(with_number(sample(), 12, 4, 1), damaged, "an invalid offset or length");
  expect_error(with_number(sample(), 16, 8, kHuge), ErrorCode::plan_truncated, "ends after");
  expect_error(with_number(sample(), 16, 8, 64), damaged, "after its end");
  expect_error(with_number(sample(), 24, 8, 1), damaged, "reserved field");
  expect_error(with_number(sample(), 64 + 8, 8, kHuge), damaged, "an invalid offset or length");
  expect_error(with_number(sample(), 64 + 16, 8, kHuge), damaged, "an invalid offset or length");
  expect_error(with_number(sample(), 64 + 24, 8, kHuge), damaged, "inconsistent fields");
  expect_error(with_number(sample(), 64 + 32, 8, 1), damaged, "inconsistent fields");
  expect_error(with_number(sample(), 64 + 40, 8, 1), damaged, "inconsistent fields");
  expect_error(with_number(sample(), 128 + 24, 8, kHuge), damaged, "wrong size");
  expect_error(sample() + "x", damaged, "1 bytes after its end");
}

TEST(Container, UnknownFlagsAndKindsAreNewer) {
  expect_error(with_number(sample(), 64 + 4, 4, 4), ErrorCode::plan_newer, "flags 0x4");
  expect_error(with_number(sample(), 64, 4, 77), ErrorCode::plan_newer, "kind 77");
  expect_error(with_number(sample(), 64 + 4, 4, 2), ErrorCode::plan_damaged, "wrong flags");
  expect_error(with_number(sample(), 128 + 4, 4, 0), ErrorCode::plan_damaged, "section");
  expect_error(with_number(sample(), 128, 4, 1), ErrorCode::plan_damaged, "wrong flags");
}

// The sections that serialize writes, plus one.
std::string with_section(const SectionSource& section, bool in_front) {
  const Plan plan = testing::sample_plan();
  const std::string manifest = manifest_json(plan);
  std::vector<SectionSource> sections = {
      {kManifestSection, false, false, manifest},
      {kCudnnPlanSection, true, false, plan.compiled[0].cudnn_plan}};
  sections.insert(in_front ? sections.begin() : sections.end(), section);
  return write_container(sections);
}

TEST(Container, OptionalSectionsOfUnknownKindAreLeftOut) {
  for (const bool in_front : {false, true}) {
    const std::string plain = with_section({77, false, true, "later"}, in_front);
    ASSERT_TRUE(deserialize(plain).ok());
    EXPECT_EQ(*deserialize(plain), testing::sample_plan());
    EXPECT_TRUE(deserialize(with_section({77, true, true, "later"}, in_front)).ok());
    expect_error(with_section({77, false, false, "later"}, in_front), ErrorCode::plan_newer,
                 "kind 77");
  }
}

TEST(Container, SectionsLeftOutAreUnderTheirChecksumsAllTheSame) {
  std::string bytes = with_section({77, false, true, "later"}, false);
  bytes.back() ^= 1;
  expect_error(bytes, ErrorCode::plan_damaged, "does not match its checksum");
}

TEST(Container, MissingAndSurplusSectionsAreDamage) {
  const Plan plan = testing::sample_plan();
  const std::string manifest = manifest_json(plan);
  const SectionSource m = {kManifestSection, false, false, manifest};
  const SectionSource p = {kCudnnPlanSection, true, false, plan.compiled[0].cudnn_plan};
  const SectionSource other = {kCudnnPlanSection, true, false,
                               "{\"kernel\": \"1111111111111111\"}"};
  expect_error(write_container({}), ErrorCode::plan_damaged, "no manifest");
  expect_error(write_container({p}), ErrorCode::plan_damaged, "no manifest");
  expect_error(write_container({m, m, p}), ErrorCode::plan_damaged, "1 cuDNN plans for 2 steps");
  expect_error(write_container({m}), ErrorCode::plan_damaged, "0 cuDNN plans for 1 steps");
  expect_error(write_container({m, p, p}), ErrorCode::plan_damaged, "2 cuDNN plans for 1 steps");
  expect_error(write_container({m, other}), ErrorCode::plan_damaged, "does not match the manifest");
  EXPECT_TRUE(deserialize(write_container({p, m})).ok());
}

TEST(Container, UnpackingIsBoundedByTheLimitAndTheClaim) {
  const std::string zeros(std::size_t{1} << 20, '\0');
  const std::string bytes = write_container({{7, true, true, zeros}});
  const auto container = read_container(bytes);
  ASSERT_TRUE(container.ok());
  Section section = container->front();
  EXPECT_LT(section.stored.size(), 1000U);
  EXPECT_EQ(*unpack(section, zeros.size()), zeros);
  EXPECT_EQ(unpack(section, zeros.size() - 1).error().code, ErrorCode::plan_damaged);
  section.unpacked_bytes -= 1;
  EXPECT_EQ(unpack(section, zeros.size()).error().code, ErrorCode::plan_damaged);
  section.stored = "not a zstd frame";
  EXPECT_EQ(unpack(section, zeros.size()).error().code, ErrorCode::plan_damaged);
  section.stored = "";
  EXPECT_EQ(unpack(section, zeros.size()).error().code, ErrorCode::plan_damaged);
}

// Each section is within its limit, but together they are too much for the file's size.
TEST(Container, ASmallFileDoesNotUnpackToMuch) {
  Plan plan = testing::derived_plan();
  plan.kernels = {std::string(std::size_t{20} << 20, 'a'), std::string(std::size_t{20} << 20, 'b'),
                  ""};
  const std::string manifest = manifest_json(plan);
  const std::string file =
      write_container({{kManifestSection, false, false, manifest},
                       {kCudnnPlanSection, true, false, plan.compiled[0].cudnn_plan},
                       {kKernelSection, true, false, plan.kernels[0]},
                       {kKernelSection, true, false, plan.kernels[1]},
                       {kKernelSection, true, false, plan.kernels[2]}});
  EXPECT_LT(file.size(), 100000U);
  expect_error(file, ErrorCode::plan_damaged, "the kernels are larger than allowed");
  EXPECT_EQ(most_unpacked(file.size()), kAlwaysUnpacked);
  EXPECT_EQ(most_unpacked(std::size_t{1} << 20), std::size_t{64} << 20);
  EXPECT_EQ(most_unpacked(std::size_t{1} << 40), kMaxAllPlanBytes);
}

TEST(Container, AnEmptySectionIsASection) {
  const std::string bytes = write_container({{7, true, true, ""}, {8, false, true, ""}});
  const auto container = read_container(bytes);
  ASSERT_TRUE(container.ok());
  EXPECT_EQ(*unpack(container->at(0), 0), "");
  EXPECT_EQ(*unpack(container->at(1), 0), "");
}

}  // namespace
}  // namespace attn::plan
