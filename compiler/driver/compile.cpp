#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compiler/derive/nvrtc.h"
#include "compiler/driver/driver.h"
#include "compiler/driver/imports.h"
#include "compiler/driver/shape.h"
#include "runtime/base/spec_form.h"
#include "runtime/cache/plan_cache.h"

namespace attn::driver {
namespace {

using planner::Candidate;
using planner::Candidates;
using planner::Lowered;
using planner::may_try_another;
using planner::Refusal;
using planner::Strategy;
using Limits = std::optional<derive::KernelLimits>;

// All cuDNN steps, in one worker; equal graphs once.
Status compile_graphs(plan::Plan& plan, const CompileOptions& options) {
  std::vector<graph::BackendGraph> graphs;
  std::vector<std::size_t> graph_of_step;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(plan.program)) {
    const auto found = std::ranges::find(graphs, step->graph);
    graph_of_step.push_back(static_cast<std::size_t>(found - graphs.begin()));
    if (found == graphs.end()) graphs.push_back(step->graph);
  }
  if (graphs.empty()) return {};
  ATTN_ASSIGN(const std::vector<worker::Compiled> compiled,
              worker::compile(graphs, options.target.device_json, options.worker));
  for (const std::size_t graph : graph_of_step) plan.compiled.push_back(compiled[graph].step);
  plan.cudnn_version = compiled.front().cudnn_version;
  return {};
}

// Element-wise kernels have no limits.
Status compile_kernels(plan::Plan& plan, const CompileOptions& options, const Limits& limits) {
  for (const auto& [source, general] : plan::sources_of(plan.program)) {
    const auto kind = general ? derive::KernelKind::general : derive::KernelKind::element_wise;
    std::string log;
    ATTN_ASSIGN(std::string image, derive::compile_kernel(*source, options.target.sm,
                                                          options.worker.cudnn_folder, kind, &log));
    if (general && limits) {
      ATTN_RETURN_IF_ERROR(derive::check_assembly(derive::read_assembly(log), *limits));
    }
    plan.kernels.push_back(std::move(image));
  }
  return {};
}

// Fills in what depends on the target: compiled steps, cuDNN's version (0 without steps of its),
// signature.
Status compile_steps(plan::Plan& plan, const CompileOptions& options, const Limits& limits) {
  plan.target = options.target;
  plan.compiled.clear();
  plan.kernels.clear();
  plan.cudnn_version = 0;
  ATTN_RETURN_IF_ERROR(compile_graphs(plan, options));
  ATTN_RETURN_IF_ERROR(compile_kernels(plan, options, limits));  // seldom refused: last
  plan.signature = plan::signature_of(plan.program, plan.target, plan.cudnn_version);
  return {};
}

// Whether more is known of it than what was predicted: times, or that some could not be built.
bool was_tried(const std::vector<plan::Alternative>& choice) {
  return std::ranges::any_of(choice, [](const plan::Alternative& way) {
    return way.measured_ms.has_value() || !way.refused.empty();
  });
}

// What a signature does not have is that of this spec: the words for people, and what its other
// sizes would mean.
plan::Plan worded(const plan::Plan& words, plan::Plan plan) {
  plan.spec_name = words.spec_name;
  plan.spec_text = words.spec_text;
  plan.bindings = words.bindings;
  plan.shape = words.shape;
  plan.lowering = words.lowering;
  plan.without = words.without;
  plan.parts = words.parts;
  if (!was_tried(plan.choice)) plan.choice = words.choice;
  return plan;
}

// Without a rewrite the same program may come of another choice, and what was measured is no longer
// true of it.
CachedPlans cached_plans(const CompileOptions& options) {
  return options.rewrites == planning::Rewrites{} ? options.cached : CachedPlans{};
}

// A plan without steps of cuDNN's is for every version.
cache::Key key_of(const plan::Program& program, const CompileOptions& options) {
  const bool asks = !plan::steps_of<plan::CudnnStep>(program).empty();
  return cache::Key(
      plan::signature_of(program, options.target, asks ? options.cached.cudnn_version : 0));
}

Status take_or_compile_steps(plan::Plan& plan, const CompileOptions& options,
                             const Limits& limits) {
  const CachedPlans cached = cached_plans(options);
  if (cached.cache == nullptr) return compile_steps(plan, options, limits);
  const cache::Key key = key_of(plan.program, options);
  ATTN_ASSIGN(const cache::PlanCache::Pointer found,
              cached.cache->get(key, [&]() -> Result<plan::Plan> {
                plan::Plan compiled = plan;
                ATTN_RETURN_IF_ERROR(compile_steps(compiled, options, limits));
                return compiled;
              }));
  plan = worded(plan, *found);
  return {};
}

// Of a candidate that was not taken. Those with a lower bound were lowered; of the others the bound
// counts, so that it does not matter whether they were.
double predicted(const Candidate& candidate, const Candidate& taken) {
  const bool may_win = candidate.bound < taken.lowered->predicted_ms;
  return may_win && candidate.lowered ? candidate.lowered->predicted_ms : candidate.bound;
}

// The one that was taken alone where all were predicted to take as long and none failed. `failed`:
// those that were tried before it, other programs of its strategy too; `predicted_ms`: of the
// program.
std::vector<plan::Alternative> choice(const Candidate& taken, double predicted_ms,
                                      const Candidates& candidates,
                                      const std::vector<Refusal>& failed) {
  std::vector<plan::Alternative> all = {{std::string(taken.strategy->name), predicted_ms}};
  for (const Refusal& failure : failed) {
    if (failure.lowering != taken.strategy->name) continue;
    all.push_back({failure.lowering, taken.lowered->predicted_ms, {}, failure.error.message});
  }
  bool differ = false;
  for (const Candidate& candidate : candidates.all()) {
    if (candidate.strategy == taken.strategy) continue;
    if (candidate.strategy->kind == Strategy::Kind::slow) continue;
    plan::Alternative other{std::string(candidate.strategy->name), predicted(candidate, taken)};
    const bool same = other.predicted_ms == taken.lowered->predicted_ms;
    differ |= !same;
    const auto failure = std::ranges::find(failed, other.lowering, &Refusal::lowering);
    if (failure != failed.end()) {
      other.refused = failure->error.message;
      differ |= failure->error.code != ErrorCode::unsupported;
    }
    // Another form of the same kernel, which may not even apply, is no alternative to list.
    const bool is_form = same && candidate.strategy->kind == Strategy::Kind::alternative;
    if (!is_form || !other.refused.empty()) all.push_back(std::move(other));
  }
  const auto is_other = [&taken](const plan::Alternative& way) {
    return way.lowering != taken.strategy->name;
  };
  if (!differ) std::erase_if(all, is_other);
  return all;
}

// A primary strategy that cannot express the attention is reported where a later one was taken.
std::vector<Refusal> reported(const std::vector<Refusal>& refused,
                              const std::vector<Refusal>& failed, const Strategy& taken) {
  std::vector<Refusal> reported;
  for (const Refusal& refusal : refused) {
    const Strategy& strategy = planner::strategies(refusal.lowering).front();
    if (taken.kind != Strategy::Kind::alternative && &strategy < &taken) {
      reported.push_back(refusal);
    }
  }
  std::ranges::copy_if(failed, std::back_inserter(reported), [&taken](const Refusal& refusal) {
    return refusal.lowering != taken.name;  // its other programs are in the plan's choice
  });
  return reported;
}

std::optional<plan::Plan> cached_plan(const Candidate& candidate, const CompileOptions& options) {
  const CachedPlans cached = cached_plans(options);
  auto plan = cached.cache->files()->load(key_of(candidate.lowered->program, options));
  return plan.ok() && *plan ? std::optional(**plan) : std::nullopt;
}

// In the order in which they are tried. The one that the cache remembers as the fastest of all that
// were measured, or as the first that could be built, is first.
class Tried {
 public:
  Tried(Candidates& candidates, const CompileOptions& options)
      : candidates_(candidates), options_(options) {}

  // Null: none left. Errors: those of Candidates::next.
  Result<const Candidate*> next() {
    if (!looked_) ATTN_RETURN_IF_ERROR(look_for_winner());
    if (!ahead_.empty()) {
      const Candidate* candidate = ahead_.front();
      ahead_.erase(ahead_.begin());
      return candidate;
    }
    return candidates_.next();
  }

 private:
  Status look_for_winner() {
    looked_ = true;
    const CachedPlans cached = cached_plans(options_);
    if (options_.measure || cached.cache == nullptr || !cached.cache->files()) return {};
    while (true) {
      ATTN_ASSIGN(const Candidate* candidate, candidates_.next());
      if (candidate == nullptr) return {};
      ahead_.push_back(candidate);
      const std::optional<plan::Plan> plan = cached_plan(*candidate, options_);
      const bool won = plan && was_tried(plan->choice) &&
                       plan->choice.front().lowering == candidate->strategy->name;
      if (!won) continue;
      std::rotate(ahead_.begin(), ahead_.end() - 1, ahead_.end());
      return {};
    }
  }

  Candidates& candidates_;
  const CompileOptions& options_;
  std::vector<const Candidate*> ahead_;
  bool looked_ = false;
};

struct Taken {
  plan::Plan plan;
  const Candidate* candidate = nullptr;
};

// The first that `build` can build; `failed` gets those before it.
template <typename Build>
Result<Taken> first_built(Tried& tried, const Candidates& candidates, std::vector<Refusal>& failed,
                          const Build& build) {
  while (true) {
    ATTN_ASSIGN(const Candidate* candidate, tried.next());
    if (candidate == nullptr) break;
    Result<plan::Plan> plan = build(*candidate);
    if (plan.ok()) return Taken{std::move(*plan), candidate};
    failed.push_back({std::string(candidate->strategy->name), plan.error()});
    if (!may_try_another(plan.error())) break;
  }
  std::vector<Refusal> all = candidates.refused();
  all.insert(all.end(), failed.begin(), failed.end());
  return planner::error_of(planner::in_order(std::move(all)));
}

// The plan that takes least when it is measured.
template <typename Build>
Result<Taken> fastest(const ir::Attention& attention, Tried& tried, const Candidates& candidates,
                      const CompileOptions& options, std::vector<Refusal>& failed,
                      const Build& build) {
  std::optional<Taken> best;
  std::vector<plan::Alternative> all;
  while (true) {
    ATTN_ASSIGN(const Candidate* candidate, tried.next());
    if (candidate == nullptr) break;
    plan::Alternative each{std::string(candidate->strategy->name),
                           candidate->lowered->predicted_ms};
    Result<plan::Plan> plan = build(*candidate);
    if (!plan.ok()) {
      if (!may_try_another(plan.error())) return plan.error();
      failed.push_back({each.lowering, plan.error()});
      each.refused = plan.error().message;
      all.push_back(std::move(each));
      continue;
    }
    ATTN_ASSIGN(each.measured_ms, options.measure(attention, *plan));
    const bool first = !best || *each.measured_ms < *all.front().measured_ms;
    all.insert(first ? all.begin() : all.end(), std::move(each));
    if (first) best = Taken{std::move(*plan), candidate};
  }
  if (!best) {
    std::vector<Refusal> refused = candidates.refused();
    refused.insert(refused.end(), failed.begin(), failed.end());
    return planner::error_of(planner::in_order(std::move(refused)));
  }
  best->plan.choice = std::move(all);
  const CachedPlans cached = cached_plans(options);
  if (cached.cache != nullptr && cached.cache->files()) {
    ATTN_RETURN_IF_ERROR(cached.cache->files()->save(best->plan));
  }
  return std::move(*best);
}

bool is_refused(const Result<plan::Plan>& plan) {
  return !plan.ok() && plan.error().code == ErrorCode::unsupported;
}

// What a forward of a training pair has.
bool makes_o_and_lse(const plan::Plan& plan) {
  const auto makes = [&plan](std::string_view name) {
    return std::ranges::any_of(plan.program.tensors, [name](const plan::TensorInfo& tensor) {
      return tensor.is_output() && tensor.name == name;
    });
  };
  return makes("o") && makes("lse");
}

}  // namespace

Result<plan::Program> lower(const ir::Attention& attention, std::string_view lowering,
                            const planning::Context& context) {
  Candidates candidates(attention, lowering, context);
  ATTN_ASSIGN(const Candidate* first, candidates.next());
  return first->lowered->program;
}

Result<plan::Program> lower(const ir::Attention& attention, std::string_view lowering,
                            plan::Direction direction, planning::Rewrites made) {
  return lower(attention, lowering, planning::Context{.direction = direction, .rewrites = made});
}

planning::Context context_of(const CompileOptions& options) {
  return {.gpu = planning::gpu_of(options.target),
          .cudnn_version = options.cached.cudnn_version,
          .direction = options.direction,
          .rewrites = options.rewrites,
          .analyses = options.analyses};
}

Result<Compiled> compile(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  plan::Plan words;
  words.spec_name = attention.name;
  words.spec_text = standing_alone(source);
  words.bindings = bindings;
  words.without = planning::without(options.rewrites);
  Candidates candidates(attention, options.lowering, context_of(options));
  Tried tried(candidates, options);
  std::vector<Refusal> failed;
  const auto compiled = [&](const Candidate& candidate,
                            const Lowered& lowered) -> Result<plan::Plan> {
    plan::Plan plan = words;
    plan.program = lowered.program;
    plan.shape = shape_of(source, bindings, attention, plan.program);
    plan.choice = choice(candidate, lowered.predicted_ms, candidates, failed);
    plan.lowering = candidate.strategy->name;
    plan.parts = lowered.parts;
    ATTN_RETURN_IF_ERROR(take_or_compile_steps(plan, options, candidate.strategy->limits));
    return plan;
  };
  // The first of its programs that is not refused.
  const auto build = [&](const Candidate& candidate) -> Result<plan::Plan> {
    Result<plan::Plan> plan = compiled(candidate, *candidate.lowered);
    for (std::size_t refused = 1; is_refused(plan); ++refused) {
      const Result<Lowered> other = candidates.lower_again(candidate, refused);
      if (!other.ok()) break;
      failed.push_back({std::string(candidate.strategy->name), plan.error()});
      plan = compiled(candidate, *other);
    }
    return plan;
  };
  ATTN_ASSIGN(Taken taken, options.measure
                               ? fastest(attention, tried, candidates, options, failed, build)
                               : first_built(tried, candidates, failed, build));
  const Strategy& strategy = *taken.candidate->strategy;
  return Compiled{std::move(taken.plan), reported(candidates.refused(), failed, strategy)};
}

// From the spec, not from the stored program: what is emitted may have changed since.
Result<Compiled> recompile(const plan::Plan& plan, const CompileOptions& options) {
  const bool json = is_json_spec(plan.spec_text);
  const support::Source source(plan.spec_name + (json ? ".attn.json" : ".attn"), plan.spec_text);
  ATTN_RETURN_IF_ERROR(check_stands_alone(source));
  diag::Sink sink(source);
  const std::optional<ir::Attention> attention = front_end(source, plan.bindings, sink);
  if (!attention) {
    return Error{ErrorCode::invalid_spec,
                 "the spec in the plan file is refused now",
                 {diag::to_text(sink)},
                 {}};
  }
  CompileOptions how = options;
  how.direction = plan::direction_of(plan.program);
  how.rewrites = planning::all_but(plan.without, options.rewrites);
  const bool pair = how.direction == plan::Direction::forward && makes_o_and_lse(plan);
  return compile(pair ? training_forward(*attention) : *attention, source, plan.bindings, how);
}

}  // namespace attn::driver
