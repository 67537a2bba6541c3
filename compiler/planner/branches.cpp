#include "compiler/planner/branches.h"

#include <fmt/format.h>

#include "compiler/engines/engines.h"
#include "compiler/engines/shared/branches.h"
#include "compiler/ir/branches.h"

namespace attn::planner {
namespace {

// Strategies for branches: all, those of an engine, or those of the engine of a strategy.
std::string_view name_for_branches(std::string_view name) {
  if (name == kAnyLowering || name == kAnyOrSlow) return name;
  const engines::Engine* engine = engine_of(name);
  return engine != nullptr ? engine->name : name;
}

// Programs of own kernels follow each other by their limits alone. Of cuDNN there is one, which may
// not be built: then another strategy's.
bool may_follow(const Candidate& next, const Candidate& last) {
  return next.strategy == last.strategy || !engines::has_own_kernels(last.strategy->name);
}

}  // namespace

Branches::Branches(const ir::Attention& attention, std::string_view name,
                   const target::Context& context)
    : attention_(attention) {
  if (const Status layouts = engines::check_branches(attention); !layouts.ok()) {
    refusal_ = layouts.error();
    return;
  }
  for (const ir::Branch& branch : attention.branches) {
    if (context.backward() && !ir::has_gradients(attention, branch)) continue;
    refusal_ = add(branch, name_for_branches(name), context);
    if (refusal_) return;
  }
}

std::optional<Error> Branches::add(const ir::Branch& branch, std::string_view name,
                                   const target::Context& context) {
  OfBranch of{&branch,
              std::make_unique<Search>(
                  ir::branch_alone(attention_, branch, attention_.wants_branches), name, context)};
  Result<Candidate*> best = of.search->next();
  if (!best.ok()) {
    Error error = best.error();
    error.message = fmt::format("the branch `{}`: {}", branch.attention.branch, error.message);
    return error;
  }
  of.programs.push_back(*best);
  all_.push_back(std::move(of));
  return std::nullopt;
}

const Candidate& Branches::OfBranch::at(std::size_t program) {
  while (programs.size() <= program) {
    const Candidate* const last = programs.back();
    search->add_next_of(*last);
    const Result<Candidate*> next = search->next();
    if (!next.ok() || *next == nullptr || *next == last || !may_follow(**next, *last)) return *last;
    programs.push_back(*next);
  }
  return *programs[program];
}

Result<Lowered> Branches::added(Lowered own, std::size_t program) {
  std::vector<engines::BranchProgram> programs;
  for (OfBranch& of : all_) {
    const Candidate& candidate = of.at(program);
    const std::string& name = of.branch->attention.branch;
    programs.push_back({of.branch, candidate.lowered->program});
    own.predicted_ms += candidate.lowered->predicted_ms;
    own.unmeasured |= candidate.lowered->unmeasured;
    if (!own.limits) own.limits = candidate.lowered->limits;
    own.parts.push_back(fmt::format("branch {} by {}, {:.3f} ms", name, candidate.strategy->name,
                                    candidate.lowered->predicted_ms));
    for (const std::string& part : candidate.lowered->parts)
      own.parts.push_back(fmt::format("{}: {}", name, part));
  }
  ATTN_ASSIGN(own.program,
              engines::with_branches(attention_, std::move(own.program), std::move(programs)));
  return own;
}

}  // namespace attn::planner
