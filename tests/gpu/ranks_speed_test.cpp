// How fast the kernels of ranks move and merge rows: they must be limited by memory alone.
#include <cstdio>

#include "compiler/codegen/sources.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/ranks/kernels.h"
#include "runtime/ranks/merge_rows.h"
#include "tests/gpu/gpu_test.h"

namespace attn::testing {
namespace {

using ranks::Address;
using ranks::Bases;

constexpr std::int64_t kRows = 1 << 16, kHeads = 8, kWidth = 128;
constexpr std::int64_t kElements = kRows * kHeads * kWidth;
constexpr ranks::Strides kBshd{kElements, kWidth, kHeads* kWidth};
constexpr ranks::Strides kBhsd{kElements, kRows* kWidth, kWidth};

class RanksSpeed : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const auto image = nvrtc::compile_kernel(codegen::include_text("ranks.cuh"), device().sm(), "");
    ASSERT_TRUE(image.ok()) << image.error().to_text();
    scope_.emplace();
    ASSERT_TRUE(scope_->enter(device()).ok());
    kernels_.emplace(ranks::Kernels::load(device(), *image).value());
    memory_ = cuda::DeviceBuffer::allocate(device(), 16 * kElements).value();
    ASSERT_TRUE(memory_.fill(0).ok());
  }

  // Prints the speed of a launch that reads and writes so many bytes.
  template <typename Launch>
  void measure(const char* what, const Launch& launch, std::int64_t bytes) {
    const cuda::Stream stream = cuda::Stream::create(device()).value();
    cuda::Event begin = cuda::Event::create(device()).value();
    cuda::Event end = cuda::Event::create(device()).value();
    constexpr int kRuns = 20;
    for (int run = 0; run < kRuns + 3; ++run) {
      if (run == 3) {
        ASSERT_TRUE(begin.record(stream.handle()).ok());
      }
      ASSERT_TRUE(kernels_->run(launch, stream.handle()).ok());
    }
    ASSERT_TRUE(end.record(stream.handle()).ok() && end.synchronize().ok());
    const double ms = end.milliseconds_since(begin).value() / kRuns;
    std::printf("  %-40s %7.1f us  %6.0f GB/s\n", what, ms * 1e3,
                static_cast<double>(bytes) / ms / 1e6);
  }

  Address at(std::int64_t bytes) const { return {Address::In::memory, 0, bytes}; }

  std::optional<cuda::Scope> scope_;
  std::optional<ranks::Kernels> kernels_;
  cuda::DeviceBuffer memory_;
};

TEST_F(RanksSpeed, OfCopies) {
  const Bases bases{memory_.data(), nullptr, {}};
  ranks::Copy copy{at(0), at(4 * kElements), kBshd, kBshd, 2, 1, kHeads, kRows, kWidth, {}};
  measure("copy of bshd", ranks::launches_of({&copy, 1}, bases)[0], 4 * kElements);
  copy.from_strides = kBhsd;
  measure("copy of bhsd to bshd", ranks::launches_of({&copy, 1}, bases)[0], 4 * kElements);
  copy.width = 100;
  measure("copy of a width of 100", ranks::launches_of({&copy, 1}, bases)[0],
          4 * kElements / kWidth * 100);
}

TEST_F(RanksSpeed, OfMerges) {
  const ranks::Intervals all = {{0, kRows}};
  for (const int count : {1, 2, 4}) {
    ranks::Merge merge;
    const auto place = [&](std::int64_t offset) {
      ranks::MergePlace made;
      made.dtype = DType::bf16;
      made.heads = {0, kHeads};
      made.slots[0] = {at(offset), kBshd};
      made.slots[1] = {at(12 * kElements), {kRows * kHeads, kRows, 1}};
      return made;
    };
    std::vector<const ranks::Intervals*> sources(static_cast<std::size_t>(count), &all);
    for (int i = 0; i < count; ++i) merge.places.push_back(place(2 * kElements * i));
    merge.home = place(10 * kElements);
    ranks::MergeRows rows;
    rows.add({ranks::kHome, all, all}, sources);
    ranks::Table table;
    merge.rows = kRows;
    merge.width = kWidth;
    merge.heads = {0, kHeads};
    merge.weighted = true;
    merge.uniform = rows.shorten();
    merge.first = table.add(rows.first());
    merge.entries = table.add(rows.entries());
    const Bases unbound{memory_.data(), nullptr, {}};
    std::vector<ranks::RanksPlace> places;
    for (const ranks::MergePlace& each : merge.places)
      places.push_back(ranks::resolved(each, unbound));
    auto words = cuda::DeviceBuffer::allocate(device(), table.words().size() * sizeof(int)).value();
    auto placed =
        cuda::DeviceBuffer::allocate(device(), places.size() * sizeof(ranks::RanksPlace)).value();
    ASSERT_TRUE(words.upload(std::as_bytes(std::span(table.words()))).ok());
    ASSERT_TRUE(placed.upload(std::as_bytes(std::span(places))).ok());
    const ranks::MergeLaunch launch =
        ranks::launch_of(merge, {memory_.data(), words.data(), {}},
                         static_cast<const ranks::RanksPlace*>(placed.data()));
    measure(("merge of " + std::to_string(count)).c_str(), launch, 2 * kElements * (count + 1));
  }
}

}  // namespace
}  // namespace attn::testing
