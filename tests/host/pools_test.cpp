// Runs kernels over keys and values in views of one allocation on the emulated GPU: each has the
// same bits as that of separate pools.
#include "tests/pools/pools.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/driver/driver.h"
#include "runtime/base/check.h"
#include "tests/host/attention.h"
#include "tests/host/machine.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::host {
namespace {

using testing::PoolViews;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kPagesMore = 3;  // than the plan's

class Pools {
 public:
  explicit Pools(const std::string& text, bool of_warps = false) : attention_(attention_of(text)) {
    target::Context context;
    context.rewrites.warp_groups = !of_warps;
    auto program = driver::lower(attention_, "native", context);
    ATTN_CHECK(program.ok(), text);
    program_ = std::move(*program);
    inputs_ = tools::make_inputs(attention_, {}, tools::Missing::pattern, tools::Needs::forward)
                  .value()
                  .values;
    kernels_.emplace(Kernels::compile({&program_}).value());
  }

  testing::PoolSizes sizes() const {
    const std::vector<std::int64_t>& k = tensor("k").dims;
    return {k[0] + kPagesMore, k[1], k[2], k[3]};
  }

  // v is the first columns of k.
  void share() { testing::share_values(inputs_); }

  // The outputs, in the program's order.
  std::vector<Bytes> outputs(const PoolViews& views) const {
    const plan::Program program = testing::viewed(program_, views, sizes().pages);
    const tools::Placement placement = tools::Placement::create(program, inputs_).value();
    const Bytes pools = testing::pool_bytes(program, inputs_, views);
    Machine machine(program, *kernels_);
    for (const plan::TensorInfo& info : program.tensors) {
      Bytes& memory = machine.memory(info.name);
      if (info.is_output()) continue;
      if (info.name == "k" || info.name == "v") {
        const auto first = static_cast<std::size_t>(info.name == "k" ? views.k : views.v);
        std::copy_n(pools.begin() + static_cast<std::ptrdiff_t>(first * size_of(info.dtype)),
                    memory.size(), memory.begin());
      } else if (info.role == plan::TensorRole::control) {
        memory = testing::table_bytes(program, inputs_, info);
      } else {
        memory = placement.bytes_of(info).value();
      }
    }
    const Status status = machine.run();
    EXPECT_TRUE(status.ok()) << status.error().to_text();
    std::vector<Bytes> all;
    for (const plan::TensorInfo& info : program.tensors) {
      if (info.is_output()) all.push_back(machine.memory(info.name));
    }
    return all;
  }

  void expect_right(const std::vector<Bytes>& found) const {
    EXPECT_EQ(testing::differences(attention_, program_, inputs_, found), "");
  }

 private:
  const plan::TensorInfo& tensor(const std::string& name) const {
    return *std::ranges::find(program_.tensors, name, &plan::TensorInfo::name);
  }

  ir::Attention attention_;
  plan::Program program_;
  reference::Inputs inputs_;
  std::optional<Kernels> kernels_;
};

class HostPools : public ::testing::TestWithParam<std::int64_t> {};

void expect_same_bits(const Pools& pools) {
  std::vector<Bytes> first;
  for (const PoolViews& views : testing::views_of(pools.sizes())) {
    const std::vector<Bytes> found = pools.outputs(views);
    if (first.empty()) {
      first = found;
      pools.expect_right(found);
    }
    EXPECT_EQ(found, first) << views.name;
  }
}

TEST_P(HostPools, HaveTheSameBitsInEveryLayout) {
  expect_same_bits(Pools(testing::spec_in_pages(GetParam())));
}
TEST_P(HostPools, HaveTheSameBitsByKernelsOfWarps) {
  expect_same_bits(Pools(testing::spec_in_pages(GetParam()), true));
}

INSTANTIATE_TEST_SUITE_P(Pages, HostPools, ::testing::Values(1, 16, 256));

TEST(HostSharedPools, ValuesMayBeAPartOfTheRowsOfKeys) {
  for (const std::int64_t page : {1, 64}) {
    for (const bool of_warps : {false, true}) {
      Pools pools(testing::spec_in_pages(page, true), of_warps);
      pools.share();
      pools.expect_right(pools.outputs(testing::views_of_shared(pools.sizes())));
    }
  }
}

}  // namespace
}  // namespace attn::host
