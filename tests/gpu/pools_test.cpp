// Keys and values in views of one allocation, as inference engines have them: each layout gives the
// bits of separate pools, whatever unused memory holds. For compute capability 9.0.
#include "tests/pools/pools.h"

#include <algorithm>

#include "compiler/driver/driver.h"
#include "tests/gpu/gpu_test.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::execute {
namespace {

using testing::PoolViews;

constexpr std::int64_t kPagesMore = 3;  // than the plan's

class PoolsOnDevice : public testing::GpuTest, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  using Bytes = std::vector<std::byte>;

  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && device().sm() != 90) {
      GTEST_SKIP() << "SKIPPED: needs compute capability 9.0";
    }
  }

  void load(const std::string& text) {
    const support::Source source("pools.attn", text);
    diag::Sink sink(source);
    attention_ = driver::front_end(source, {}, sink);
    ASSERT_TRUE(attention_.has_value()) << diag::to_text(sink);
    driver::CompileOptions options;
    options.target = {device().name(), device().sm(), ""};
    auto compiled = driver::compile(*attention_, source, {}, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
    plan_ = std::move(compiled).value().plan;
    inputs_ = tools::make_inputs(*attention_, {}, tools::Missing::pattern, tools::Needs::forward)
                  .value()
                  .values;
    executable_ = Executable::load(plan_).value();
    stream_ = cuda::Stream::create(device()).value();
  }

  testing::PoolSizes sizes() const {
    const auto k = std::ranges::find(plan_.program.tensors, "k", &plan::TensorInfo::name);
    return {k->dims[0] + kPagesMore, k->dims[1], k->dims[2], k->dims[3]};
  }

  // The outputs, in the program's order, of all that are bound.
  std::vector<Bytes> outputs(const PoolViews& views) {
    const plan::Program program = testing::viewed(plan_.program, views, sizes().pages);
    const tools::Placement placement = tools::Placement::create(program, inputs_).value();
    DeviceTensors tensors = DeviceTensors::allocate(device(), program).value();
    const Bytes bytes = testing::pool_bytes(program, inputs_, views);
    auto pools = cuda::DeviceBuffer::allocate(device(), bytes.size()).value();
    EXPECT_TRUE(pools.upload(bytes).ok());
    Arguments arguments = tensors.arguments();
    for (const plan::TensorInfo& info : program.tensors) {
      if (info.is_output()) {
        EXPECT_TRUE(tensors.fill(info.name, 0xff).ok());
      } else if (info.name == "k" || info.name == "v") {
        const auto first = static_cast<std::size_t>(info.name == "k" ? views.k : views.v);
        auto* const data = static_cast<std::byte*>(pools.data()) + first * size_of(info.dtype);
        arguments.tensor(info.name, {data, info.dtype, info.dims, info.strides});
      } else {
        const bool is_table = info.role == plan::TensorRole::control;
        EXPECT_TRUE(tensors
                        .upload_bytes(info.name, is_table
                                                     ? testing::table_bytes(program, inputs_, info)
                                                     : placement.bytes_of(info).value())
                        .ok());
      }
    }
    auto binding = executable_->bind(arguments);
    EXPECT_TRUE(binding.ok()) << views.name << ": " << binding.error().to_text();
    std::vector<Bytes> all;
    if (!binding.ok()) return all;
    EXPECT_TRUE(binding->execute(stream_->handle()).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    for (const plan::TensorInfo& info : program.tensors) {
      if (info.is_output()) all.push_back(tensors.download_bytes(info.name).value());
    }
    return all;
  }

  void expect_right(const std::vector<Bytes>& found) const {
    EXPECT_EQ(testing::differences(*attention_, plan_.program, inputs_, found), "");
  }

  std::optional<ir::Attention> attention_;
  plan::Plan plan_;
  reference::Inputs inputs_;
  std::optional<Executable> executable_;
  std::optional<cuda::Stream> stream_;
};

TEST_P(PoolsOnDevice, HaveTheSameBitsInEveryLayout) {
  load(testing::spec_in_pages(GetParam()));
  std::vector<Bytes> first;
  for (const PoolViews& views : testing::views_of(sizes())) {
    const std::vector<Bytes> found = outputs(views);
    if (first.empty()) {
      first = found;
      expect_right(found);
    }
    EXPECT_EQ(found, first) << views.name;
  }
}

TEST_P(PoolsOnDevice, ValuesMayBeAPartOfTheRowsOfKeys) {
  load(testing::spec_in_pages(GetParam(), true));
  testing::share_values(inputs_);
  expect_right(outputs(testing::views_of_shared(sizes())));
}

INSTANTIATE_TEST_SUITE_P(Pages, PoolsOnDevice, ::testing::Values(1, 16, 64, 128, 256));

}  // namespace
}  // namespace attn::execute
