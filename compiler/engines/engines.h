// Engines and their strategies: how an attention may be computed. No strategy is right for every
// attention, cuDNN version and GPU: the one with the lowest predicted time
// (engines/shared/cost.h) that can be built is taken (compiler/planner).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/shared/strategy.h"

namespace attn::engines {

// Engines in the order of engines.def; they live as long as the program.
std::span<const Engine> engines();

inline constexpr std::string_view kAnyLowering = "auto";
inline constexpr std::string_view kAnyOrSlow = "auto or slow";

// Strategies of all engines, in order: for kAnyLowering primary ones and alternatives, for
// kAnyOrSlow slow ones too; else those of the engine of this name, the one of this name, or none.
// Only an engine with a single strategy has the name of one. They live as long as the program.
std::span<const Strategy> strategies(std::string_view name = kAnyLowering);

// The engine that has the strategy of this name, or null.
const Engine* engine_of(std::string_view strategy);
// Its name; empty if there is none.
std::string engine_name_of(std::string_view strategy);

// Whether the strategy of this name has Strategy::own_kernels.
bool has_own_kernels(std::string_view strategy);
// What a launch of a kernel does, as the strategy says that has it; empty if none does.
std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch);

// What `strategies` takes: "auto", then the name of each strategy or of each engine.
std::vector<std::string> strategy_names();
std::vector<std::string> engine_names();

}  // namespace attn::engines
