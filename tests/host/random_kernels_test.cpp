// Runs random specs (tests/fuzz/kernel_spec.h) by kernels of warps and of warp groups on an
// emulated GPU, and compares outputs and gradients with the reference. ATTN_STRESS=N in the
// environment runs N times as many; ATTN_SEED=N runs those from number N on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "tests/fuzz/kernel_spec.h"
#include "tests/host/attention.h"

namespace attn::host::random_kernels_tests {
namespace {

enum class Skeleton : std::uint8_t { of_warps, of_groups };

std::uint64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 1 : std::max(1ULL, std::strtoull(text, nullptr, 10));
}

// Those of warps on GPUs in turns.
Result<plan::Program> lower(const ir::Attention& attention, Skeleton skeleton,
                            plan::Direction direction, std::uint64_t number) {
  constexpr std::int64_t kGpus[] = {80, 90, 89};
  target::Context context;
  context.direction = direction;
  context.rewrites.short_forms = number % 2 == 1;
  if (skeleton == Skeleton::of_warps) {
    context.rewrites.warp_groups = false;
    context.gpu.sm = kGpus[number % std::size(kGpus)];
  }
  return driver::lower(attention, "native", context);
}

// Spec `number`, and its backward if it is `trained`; nothing if the kernels refuse it.
std::optional<Subject> subject_of(std::uint64_t number, bool trained, Skeleton skeleton) {
  const std::string text = fuzz::kernel_spec(number, trained);
  ir::Attention attention = attention_of(text);
  if (trained) attention = driver::training_forward(attention);
  const auto forward = lower(attention, skeleton, plan::Direction::forward, number);
  if (!forward.ok()) return std::nullopt;
  const bool early = number / 2 % 2 == 0;
  Pair pair{"native",
            *forward,
            {},
            early ? gpu::Order::early_copies : gpu::Order::late_copies,
            tools::Unused::anything};
  if (trained) {
    const auto backward = lower(attention, skeleton, plan::Direction::backward, number);
    if (!backward.ok()) return std::nullopt;
    pair.backward = *backward;
  }
  return Subject{fmt::format("{}: {}", number, text), attention, {std::move(pair)}};
}

void expect_reference_of(std::size_t count, bool trained, Skeleton skeleton) {
  const std::uint64_t first = number_in("ATTN_SEED");
  const std::size_t wanted = count * number_in("ATTN_STRESS");
  std::vector<Subject> subjects;
  std::uint64_t tried = 0;
  for (; subjects.size() < wanted && tried < 2 * wanted; ++tried) {
    std::optional<Subject> subject = subject_of(first + tried, trained, skeleton);
    if (subject) subjects.push_back(std::move(*subject));
  }
  EXPECT_EQ(subjects.size(), wanted) << "of " << tried;
  expect_reference(subjects);
}

TEST(HostRandomWarps, ForwardsAreTheReference) {
  expect_reference_of(8, false, Skeleton::of_warps);
}
TEST(HostRandomWarps, BackwardsAreTheReference) {
  expect_reference_of(4, true, Skeleton::of_warps);
}
TEST(HostRandomGroups, ForwardsAreTheReference) {
  expect_reference_of(4, false, Skeleton::of_groups);
}
TEST(HostRandomGroups, BackwardsAreTheReference) {
  expect_reference_of(2, true, Skeleton::of_groups);
}

}  // namespace
}  // namespace attn::host::random_kernels_tests
