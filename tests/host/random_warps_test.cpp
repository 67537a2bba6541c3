// Runs random specs (tests/fuzz/kernel_spec.h) by kernels of warps on an emulated GPU, and compares
// outputs and gradients with the reference. ATTN_STRESS=N in the environment runs N times as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tests/fuzz/kernel_spec.h"
#include "tests/host/attention.h"

namespace attn::host::random_warps_tests {
namespace {

constexpr std::int64_t kGpus[] = {80, 90, 89};

std::size_t times(std::size_t count) {
  const char* stress = std::getenv("ATTN_STRESS");
  return stress == nullptr ? count
                           : count * static_cast<std::size_t>(std::max(1, std::atoi(stress)));
}

Result<plan::Program> by_warps(const ir::Attention& attention, plan::Direction direction,
                               std::uint64_t number) {
  target::Context context;
  context.direction = direction;
  context.rewrites.warp_groups = false;
  context.gpu.sm = kGpus[number % std::size(kGpus)];
  return driver::lower(attention, "native", context);
}

// Spec `number`, and its backward if it is `trained`; nothing if the kernels refuse it.
std::optional<Subject> subject_of(std::uint64_t number, bool trained) {
  const std::string text = fuzz::kernel_spec(number, trained);
  ir::Attention attention = attention_of(text);
  if (trained) attention = driver::training_forward(attention);
  const auto forward = by_warps(attention, plan::Direction::forward, number);
  if (!forward.ok()) return std::nullopt;
  const bool early = number / 2 % 2 == 0;
  Pair pair{"native",
            *forward,
            {},
            early ? gpu::Order::early_copies : gpu::Order::late_copies,
            tools::Unused::anything};
  if (trained) {
    const auto backward = by_warps(attention, plan::Direction::backward, number);
    if (!backward.ok()) return std::nullopt;
    pair.backward = *backward;
  }
  return Subject{text, attention, {std::move(pair)}};
}

void expect_reference_of(std::size_t wanted, bool trained) {
  std::vector<Subject> subjects;
  std::uint64_t number = 1;
  for (; subjects.size() < wanted && number < 2 * wanted; ++number) {
    std::optional<Subject> subject = subject_of(number, trained);
    if (subject) subjects.push_back(std::move(*subject));
  }
  EXPECT_EQ(subjects.size(), wanted) << "of " << number - 1;
  expect_reference(subjects);
}

TEST(HostRandomWarps, ForwardsAreTheReference) { expect_reference_of(times(8), false); }

TEST(HostRandomWarps, BackwardsAreTheReference) { expect_reference_of(times(4), true); }

}  // namespace
}  // namespace attn::host::random_warps_tests
