#include <fmt/format.h>

#include "compiler/driver/driver.h"

namespace attn::driver {
namespace {

Result<Compiled> in_direction(plan::Direction direction, Result<Compiled> compiled) {
  if (compiled.ok()) return compiled;
  Error error = compiled.error();
  error.message = fmt::format("{}: {}", plan::to_string(direction), error.message);
  return error;
}

// Both, of the engine whose turn it is.
Result<std::vector<Compiled>> compile_both(planner::Pair& searches, const support::Source& source,
                                           const sema::Bindings& bindings,
                                           const CompileOptions& how) {
  std::vector<Compiled> pair;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    const auto half = [&]() -> Result<Compiled> {
      ATTN_ASSIGN(const std::unique_ptr<planner::Search> search, searches.search(direction));
      return compile(*search, source, bindings, how);
    };
    Result<Compiled> compiled = half();
    if (!compiled.ok() && searches.take_other(direction, compiled.error())) {
      return compile_both(searches, source, bindings, how);
    }
    ATTN_ASSIGN(Compiled made, in_direction(direction, std::move(compiled)));
    pair.push_back(std::move(made));
  }
  return pair;
}

}  // namespace

Result<std::vector<Compiled>> compile_pair(const ir::Attention& attention,
                                           const support::Source& source,
                                           const sema::Bindings& bindings,
                                           const CompileOptions& options) {
  const ir::Attention trained = training_forward(attention);
  masks::MaskAnalyses analyses;
  CompileOptions how = options;
  if (how.analyses == nullptr) how.analyses = &analyses;
  planner::Pair searches(trained, how.lowering, context_of(how));
  return compile_both(searches, source, bindings, how);
}

Result<std::vector<Compiled>> recompile(const plan::Bundle& bundle, const CompileOptions& options) {
  CompileOptions how = options;
  how.paired = bundle.find(plan::Direction::backward) != nullptr;
  std::vector<Compiled> all;
  for (const plan::Plan& plan : bundle.plans) {
    Result<Compiled> compiled = recompile(plan, how);
    if (bundle.plans.size() > 1) {
      compiled = in_direction(plan::direction_of(plan.program), std::move(compiled));
    }
    ATTN_RETURN_IF_ERROR(compiled.status());
    all.push_back(std::move(*compiled));
  }
  return all;
}

plan::Bundle bundle_of(const std::vector<Compiled>& compiled) {
  plan::Bundle bundle;
  for (const Compiled& one : compiled) bundle.plans.push_back(one.plan);
  return bundle;
}

}  // namespace attn::driver
