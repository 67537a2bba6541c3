#include "compiler/engines/engines.h"

#include <algorithm>

#include "compiler/codegen/key_sums.h"
#include "compiler/codegen/prologues.h"

namespace attn::engines {

namespace engine {
#define ATTN_ENGINE(name, what) std::span<const Strategy> name();
#include "compiler/engines/engines.def"
}  // namespace engine

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

// Slow ones last.
std::span<const Strategy> all_strategies() {
  static const std::vector<Strategy> kAll = strategies_of_all();
  return kAll;
}

std::span<const Strategy> without_slow() {
  const std::span<const Strategy> all = all_strategies();
  return all.first(static_cast<std::size_t>(std::ranges::find_if(all, is_slow) - all.begin()));
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
  if (name == kAnyLowering) return without_slow();
  if (name == kAnyOrSlow) return all_strategies();
  const auto engine = std::ranges::find(engines(), name, &Engine::name);
  if (engine != engines().end()) return engine->strategies;
  const std::span<const Strategy> all = all_strategies();
  const auto found = std::ranges::find(all, name, &Strategy::name);
  return found != all.end() ? std::span(found, 1) : std::span<const Strategy>();
}

const Engine* engine_of(std::string_view strategy) {
  const auto found = std::ranges::find_if(engines(), [strategy](const Engine& engine) {
    return std::ranges::find(engine.strategies, strategy, &Strategy::name) !=
           engine.strategies.end();
  });
  return found != engines().end() ? &*found : nullptr;
}

std::string engine_name_of(std::string_view strategy) {
  const Engine* engine = engine_of(strategy);
  return engine == nullptr ? "" : std::string(engine->name);
}

bool has_own_kernels(std::string_view strategy) {
  const auto found = std::ranges::find(all_strategies(), strategy, &Strategy::name);
  return found != all_strategies().end() && found->own_kernels;
}

std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch) {
  for (const Strategy& strategy : all_strategies()) {
    if (strategy.what_of_launch == nullptr) continue;
    if (std::string what = strategy.what_of_launch(step, launch); !what.empty()) return what;
  }
  if (launch.kernel == codegen::kKeySumsKernel) return "sums along keys";
  if (launch.kernel == codegen::kKeySumGradientsKernel) return "gradients through sums along keys";
  if (launch.kernel == codegen::kProloguesKernel) return "rows of q and k, before the products";
  if (launch.kernel == codegen::kPrologueGradientsKernel) return "gradients of these rows";
  return {};
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Engine& engine : engines()) names.emplace_back(engine.name);
  return names;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Strategy& strategy : all_strategies()) names.emplace_back(strategy.name);
  return names;
}

}  // namespace attn::engines
