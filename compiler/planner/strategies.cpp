#include "compiler/planner/strategies.h"

#include <algorithm>
#include <iterator>

namespace attn::planner {
namespace {

constexpr Strategy kStrategies[] = {
#define ATTN_STRATEGY(name, kind, what) \
  {#name, what, Strategy::Kind::kind, strategy::name::bound, strategy::name::lower},
#include "compiler/planner/strategies.def"
};

constexpr bool is_slow(const Strategy& strategy) { return strategy.kind == Strategy::Kind::slow; }
static_assert(std::ranges::is_sorted(kStrategies, {}, is_slow), "slow ones are last");

}  // namespace

std::span<const Strategy> strategies(std::string_view name) {
  const std::span<const Strategy> all = kStrategies;
  if (name == kAnyOrSlow) return all;
  if (name == kAnyLowering) return all.first(std::ranges::count(all, false, is_slow));
  const auto* found = std::ranges::find(kStrategies, name, &Strategy::name);
  if (found == std::end(kStrategies)) return {};
  return {found, 1};
}

std::vector<std::string> lowering_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Strategy& strategy : kStrategies) names.emplace_back(strategy.name);
  return names;
}

}  // namespace attn::planner
