#include "compiler/engines/engine.h"

#include <algorithm>

namespace attn::engines {
namespace {

bool is_slow(const Strategy& strategy) { return strategy.kind == Strategy::Kind::slow; }

std::vector<Strategy> strategies_of_all() {
  std::vector<Strategy> all;
  for (const Engine& engine : engines()) {
    all.insert(all.end(), engine.strategies.begin(), engine.strategies.end());
  }
  std::ranges::stable_sort(all, {}, is_slow);
  return all;
}

}  // namespace

std::span<const Engine> engines() {
  static const Engine kEngines[] = {
#define ATTN_ENGINE(name, what) {#name, what, engine::name()},
#include "compiler/engines/engines.def"
  };
  return kEngines;
}

std::span<const Strategy> strategies(std::string_view name) {
  static const std::vector<Strategy> kAll = strategies_of_all();
  const std::span<const Strategy> all = kAll;
  if (name == kAnyOrSlow) return all;
  if (name == kAnyLowering) return all.first(std::ranges::count(all, false, is_slow));
  const auto found = std::ranges::find(all, name, &Strategy::name);
  if (found == all.end()) return {};
  return {found, 1};
}

std::vector<std::string> lowering_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Strategy& strategy : strategies(kAnyOrSlow)) names.emplace_back(strategy.name);
  return names;
}

}  // namespace attn::engines
