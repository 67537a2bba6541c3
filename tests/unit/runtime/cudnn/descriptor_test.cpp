#include "runtime/cudnn/descriptor.h"

#include <gmock/gmock.h>

#include <array>

#include "tests/unit/runtime/cudnn/fake_cudnn.h"

namespace attn::cudnn {
namespace {

using testing::FakeCudnn;
using ::testing::HasSubstr;

// What the attribute table rejects must not compile.
template <typename A, typename V>
concept Settable = requires(DescriptorBuilder& builder, const A& attribute, V value) {
  builder.set(attribute, value);
};
static_assert(Settable<decltype(kTensorUniqueId), std::int64_t>);
static_assert(!Settable<decltype(kTensorUniqueId), int>);
static_assert(!Settable<decltype(kTensorUniqueId), float>);
static_assert(!Settable<decltype(kTensorIsVirtual), std::int64_t>);
static_assert(!Settable<decltype(kPointwiseAlpha1), double>);
static_assert(!Settable<decltype(kMatmulCompType), cudnnPointwiseMode_t>);
static_assert(!Settable<decltype(kTensorDataType), cudnnBackendHeurMode_t>);

TEST(Descriptor, CountsWhatLives) {
  FakeCudnn fake;
  const std::int64_t before = Descriptor::live_count();
  {
    auto first = Descriptor::create(fake.api(), kTensorDescriptor);
    ASSERT_TRUE(first.ok());
    Descriptor second = std::move(first).value();
    EXPECT_EQ(Descriptor::live_count(), before + 1);
    auto third = Descriptor::create(fake.api(), kTensorDescriptor);
    second = std::move(third).value();
    EXPECT_EQ(Descriptor::live_count(), before + 1);
    EXPECT_EQ(fake.live, 1);
  }
  EXPECT_EQ(Descriptor::live_count(), before);
  EXPECT_EQ(fake.live, 0);
}

TEST(Descriptor, WrongCountIsRefusedBeforeTheCall) {
  FakeCudnn fake;
  const std::array<std::int64_t, 9> dims{};
  for (const auto& refused :
       {std::span<const std::int64_t>(dims), std::span<const std::int64_t>()}) {
    const auto tensor = DescriptorBuilder(fake.api(), kTensorDescriptor)
                            .set_all(kTensorDimensions, refused)
                            .finalize();
    ASSERT_FALSE(tensor.ok());
    EXPECT_EQ(tensor.error().code, ErrorCode::internal);
    EXPECT_THAT(tensor.error().message, HasSubstr("TENSOR_DIMENSIONS of TENSOR must have 1 to 8"));
  }
  EXPECT_EQ(fake.set_calls, 0);
  EXPECT_EQ(fake.live, 0);
}

TEST(Descriptor, NothingIsCalledAfterAFailure) {
  FakeCudnn fake;
  const std::vector<std::int64_t> none;
  const auto tensor = DescriptorBuilder(fake.api(), kTensorDescriptor)
                          .set_all(kTensorDimensions, none)
                          .set(kTensorUniqueId, std::int64_t{1})
                          .finalize();
  EXPECT_FALSE(tensor.ok());
  EXPECT_EQ(fake.set_calls, 0);
}

TEST(Descriptor, FailedFinalizeHasTheLibrarysWords) {
  FakeCudnn fake;
  fake.fail_finalize[CUDNN_BACKEND_TENSOR_DESCRIPTOR] = CUDNN_STATUS_BAD_PARAM;
  fake.last_words =
      "Warning: CUDNN_STATUS_BAD_PARAM; Reason: dims[1] < 1 at: here\nWarning: "
      "CUDNN_STATUS_BAD_PARAM; Reason: finalize_internal()\n";
  const auto tensor = DescriptorBuilder(fake.api(), kTensorDescriptor).finalize();
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().code, ErrorCode::cudnn);
  EXPECT_EQ(tensor.error().message, "cuDNN: finalize TENSOR: BAD_PARAM");
  EXPECT_THAT(tensor.error().notes, ::testing::ElementsAre("dims[1] < 1 at: here"));
  EXPECT_EQ(fake.live, 0);
}

TEST(Descriptor, SurplusOfAnArrayIsDestroyedAtOnce) {
  FakeCudnn fake;
  fake.offers[CUDNN_HEUR_MODE_A] = {{{1, {}, {}}, {2, {}, {}}}, 3, "", CUDNN_STATUS_SUCCESS};
  const auto heuristics = DescriptorBuilder(fake.api(), kEngineHeurDescriptor)
                              .set(kEngineHeurMode, CUDNN_HEUR_MODE_A)
                              .finalize();
  ASSERT_TRUE(heuristics.ok());
  {
    const auto configs = heuristics->get_descriptors(kEngineHeurResults, kEngineConfigDescriptor);
    ASSERT_TRUE(configs.ok());
    EXPECT_EQ(configs->size(), 2U);
    EXPECT_EQ(fake.live, 3) << "the heuristics and two configs";
    EXPECT_EQ(fake.most_live, 6) << "exactly as many as announced";
  }
  EXPECT_EQ(fake.live, 1);
}

TEST(Descriptor, TextEndsAtItsZero) {
  FakeCudnn fake;
  const auto plan = DescriptorBuilder(fake.api(), kExecutionPlanDescriptor).finalize();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->get_text(kPlanJson).value(), "{\"plan\":1}");
}

}  // namespace
}  // namespace attn::cudnn
