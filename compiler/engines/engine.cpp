#include "compiler/engines/engine.h"

#include <algorithm>

namespace attn::engines {
namespace {

using Kind = Strategy::Kind;

// Those that are tried together have equal ranks.
int rank_of(const Strategy& strategy) {
  if (strategy.kind == Kind::on_request) return 2;
  return strategy.kind == Kind::slow ? 1 : 0;
}

std::vector<Strategy> strategies_of_all() {
  std::vector<Strategy> all;
  for (const Engine& engine : engines()) {
    all.insert(all.end(), engine.strategies.begin(), engine.strategies.end());
  }
  std::ranges::stable_sort(all, {}, rank_of);
  return all;
}

// In order of rank.
std::span<const Strategy> all_strategies() {
  static const std::vector<Strategy> kAll = strategies_of_all();
  return kAll;
}

std::span<const Strategy> up_to(int rank) {
  const std::span<const Strategy> all = all_strategies();
  return all.first(static_cast<std::size_t>(
      std::ranges::count_if(all, [rank](const Strategy& each) { return rank_of(each) <= rank; })));
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
  if (name == kAnyLowering) return up_to(0);
  if (name == kAnyOrSlow) return up_to(1);
  const std::span<const Strategy> all = all_strategies();
  const auto found = std::ranges::find(all, name, &Strategy::name);
  if (found != all.end()) return {found, 1};
  const auto engine = std::ranges::find(engines(), name, &Engine::name);
  return engine != engines().end() ? engine->strategies : std::span<const Strategy>();
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Engine& engine : engines()) names.emplace_back(engine.name);
  return names;
}

std::vector<std::string> lowering_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Strategy& strategy : all_strategies()) names.emplace_back(strategy.name);
  return names;
}

}  // namespace attn::engines
