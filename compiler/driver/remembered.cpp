#include "compiler/driver/remembered.h"

#include <algorithm>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/cache/plan_cache.h"

namespace attn::driver {
namespace {

using planner::Candidate;
using planner::Search;
using planner::Strategy;

using Choice = std::vector<plan::Alternative>;

// Measured, or failed to build; not merely predicted. (What could not be expressed has no
// prediction.)
bool was_tried(const plan::Alternative& way) {
  return way.measured_ms.has_value() || (!way.refused.empty() && way.predicted_ms > 0);
}
bool any_was_tried(const Choice& choice) { return std::ranges::any_of(choice, was_tried); }

// The steps are those of one signature.
void copy_facts(const plan::Program& from, plan::Program& to) {
  for (std::size_t i = 0; i < to.steps.size(); ++i) {
    auto* const kernels = std::get_if<plan::KernelStep>(&to.steps[i]);
    if (kernels != nullptr) kernels->facts = std::get<plan::KernelStep>(from.steps[i]).facts;
  }
}

// Copies what the signature does not cover from this spec into a cached plan: the words for people,
// what its other sizes would mean, and what was considered.
plan::Plan worded(const plan::Plan& words, plan::Plan plan) {
  plan.spec_name = words.spec_name;
  plan.spec_text = words.spec_text;
  plan.bindings = words.bindings;
  plan.shape = words.shape;
  plan.strategy = words.strategy;
  plan.without = words.without;
  plan.parts = words.parts;
  plan.choice = words.choice;
  copy_facts(words.program, plan.program);
  return plan;
}

// The key of the plan that the program becomes. One without steps of cuDNN's is for every version.
Result<cache::Key> key_of(const plan::Program& program, const CompileOptions& options) {
  std::int64_t version = 0;
  if (!plan::steps_of<plan::CudnnStep>(program).empty() && options.cached.cudnn_version) {
    ATTN_ASSIGN(version, options.cached.cudnn_version());
  }
  ATTN_ASSIGN(const std::string nvrtc, nvrtc_version(program, options));
  return cache::Key(plan::signature_of(program, options.target, version, nvrtc));
}

}  // namespace

Result<std::string> nvrtc_version(const plan::Program& program, const CompileOptions& options) {
  if (plan::sources_of(program).empty()) return std::string();
  return nvrtc::nvrtc_version(options.worker.cudnn_folder);
}

// Without a rewrite the same program may come of another choice, and what was measured is no longer
// true of it.
Remembered::Remembered(const CompileOptions& options)
    : options_(options),
      cached_(options.rewrites == target::Rewrites{} ? options.cached : CachedPlans{}) {}

Status Remembered::begin(Search& search) {
  search.begin();
  const bool measures_all = options_.autotune == Autotune::all;
  if (measures_all || cached_.cache == nullptr || !cached_.cache->files()) return {};
  std::vector<std::pair<const Candidate*, Choice>> known;
  while (true) {
    ATTN_ASSIGN(const Candidate* candidate, search.next());
    if (candidate == nullptr) break;
    search.add_next_of(*candidate);
    if (Choice choice = choice_of(*candidate); !choice.empty()) {
      known.emplace_back(candidate, std::move(choice));
    }
  }
  for (const Candidate& candidate : search.all()) {
    if (candidate.strategy->kind == Strategy::Kind::slow) continue;
    engines_.insert(planner::engine_of(candidate.strategy->name));
  }
  std::erase_if(known, [this](const auto& each) { return !would_run_again(each.second); });
  auto winner = std::ranges::find_if(
      known, [](const auto& each) { return each.second.front().measured_ms.has_value(); });
  if (winner == known.end()) winner = known.begin();
  search.begin(winner == known.end() ? nullptr : winner->first);
  return {};
}

Choice Remembered::choice_of(const Candidate& candidate) {
  const Result<cache::Key> key = key_of(candidate.lowered->program, options_);
  if (!key.ok()) return {};
  signatures_.insert(key->hash().to_hex());
  const auto plan = cached_.cache->files()->load(*key);
  if (!plan.ok() || !*plan || (*plan)->choice.empty()) return {};
  if ((*plan)->choice.front().strategy != candidate.strategy->name) return {};
  return (*plan)->choice;
}

// Whether the remembered search would run the same today: each program as it would be compiled now,
// and all engines that can serve, not only one that was named then.
bool Remembered::would_run_again(const Choice& choice) const {
  const bool same = std::ranges::all_of(choice, [this](const plan::Alternative& way) {
    return !was_tried(way) || signatures_.contains(way.signature);
  });
  return same && any_was_tried(choice) &&
         std::ranges::all_of(engines_, [&choice](const engines::Engine* engine) {
           return std::ranges::find(choice, engine, [](const plan::Alternative& way) {
                    return planner::engine_of(way.strategy);
                  }) != choice.end();
         });
}

std::string Remembered::signature_of(const plan::Program& program) const {
  if (cached_.cache == nullptr) return "";
  const Result<cache::Key> key = key_of(program, options_);
  return key.ok() ? key->hash().to_hex() : "";
}

Status Remembered::take_or_compile(plan::Plan& plan, Limits& limits, bool lasting) const {
  if (cached_.cache == nullptr) return compile_steps(plan, options_, limits);
  ATTN_ASSIGN(const cache::Key key, key_of(plan.program, options_));
  ATTN_ASSIGN(const cache::PlanCache::Pointer found,
              cached_.cache->get(key, [&]() -> Result<plan::Plan> {
                plan::Plan compiled = plan;
                if (!lasting) compiled.choice.clear();
                ATTN_RETURN_IF_ERROR(compile_steps(compiled, options_, limits));
                return compiled;
              }));
  plan = worded(plan, *found);
  if (would_run_again(found->choice)) {
    plan.choice = found->choice;
    return {};
  }
  // A folder that cannot be written remembers nothing more.
  if (lasting && any_was_tried(plan.choice) && found->choice != plan.choice) {
    static_cast<void>(keep(plan));
  }
  return {};
}

Status Remembered::keep(const plan::Plan& plan) const {
  if (cached_.cache == nullptr || !cached_.cache->files()) return {};
  return cached_.cache->files()->save(plan);
}

}  // namespace attn::driver
