#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/driver/driver.h"
#include "compiler/driver/imports.h"
#include "compiler/driver/reasons.h"
#include "compiler/driver/shape.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/base/spec_form.h"
#include "runtime/cache/plan_cache.h"
#include "runtime/plan/memory.h"

namespace attn::driver {
namespace {

using planner::Candidate;
using planner::Candidates;
using planner::Lowered;
using planner::may_try_another;
using planner::Refusal;
using planner::Strategy;

constexpr int kMostSpilling = 4;  // programs of a strategy

// Limits of the search for a program: what its kernels may need, what those of the last one
// spilled, and when they must be there.
struct Limits {
  std::optional<nvrtc::KernelLimits> limits{};
  const target::Deadline* deadline = nullptr;
  std::int64_t spilled_bytes = 0;
};

// Workers that end with the build.
worker::Options in_time(worker::Options worker, const target::Deadline& deadline) {
  using std::chrono::seconds;
  const auto left = std::chrono::ceil<seconds>(deadline.left());
  worker.timeout = std::min(worker.timeout, std::max(left, seconds(1)));
  return worker;
}

// The error of a worker that the end of the build killed says what took the time before.
Error with_phases(Error error, const target::Deadline& deadline) {
  const Status late = deadline.check();
  if (error.code != ErrorCode::worker || late.ok()) return error;
  if (error.message != late.error().message) error.notes.push_back(late.error().message);
  return error;
}

// All cuDNN steps, in one worker; equal graphs once.
Status compile_graphs(plan::Plan& plan, const CompileOptions& options, const Limits& limits) {
  std::vector<graph::BackendGraph> graphs;
  std::vector<std::size_t> graph_of_step;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(plan.program)) {
    const auto found = std::ranges::find(graphs, step->graph);
    graph_of_step.push_back(static_cast<std::size_t>(found - graphs.begin()));
    if (found == graphs.end()) graphs.push_back(step->graph);
  }
  if (graphs.empty()) return {};
  const Result<std::vector<worker::Compiled>> compiled = worker::compile(
      graphs, options.target.device_json, in_time(options.worker, *limits.deadline));
  if (!compiled.ok()) return with_reason(compiled.error());
  for (const std::size_t graph : graph_of_step) plan.compiled.push_back((*compiled)[graph].step);
  plan.cudnn_version = compiled->front().cudnn_version;
  return {};
}

// Element-wise kernels have no limits.
Status compile_kernels(plan::Plan& plan, const CompileOptions& options, Limits& limits) {
  for (const auto& [source, general] : plan::sources_of(plan.program)) {
    ATTN_RETURN_IF_ERROR(limits.deadline->check());
    ATTN_ASSIGN(worker::CompiledKernel kernel,
                worker::compile_kernel({*source, options.target.sm, general},
                                       in_time(options.worker, *limits.deadline)));
    if (general && limits.limits) {
      const nvrtc::Assembly assembly = nvrtc::read_assembly(kernel.log);
      limits.spilled_bytes = nvrtc::most_spilled(assembly, *limits.limits);
      ATTN_RETURN_IF_ERROR(nvrtc::check_assembly(assembly, *limits.limits));
    }
    plan.kernels.push_back(std::move(kernel.image));
  }
  return {};
}

// Fills in what depends on the target: compiled steps, cuDNN's version (0 without steps of its),
// signature.
Status compile_steps(plan::Plan& plan, const CompileOptions& options, Limits& limits) {
  plan.target = options.target;
  plan.compiled.clear();
  plan.kernels.clear();
  plan.cudnn_version = 0;
  ATTN_RETURN_IF_ERROR(compile_graphs(plan, options, limits));
  ATTN_RETURN_IF_ERROR(compile_kernels(plan, options, limits));  // seldom refused: last
  plan.signature = plan::signature_of(plan);
  return {};
}

// Measured, or failed to build; not merely predicted. (What could not be expressed has no
// prediction.)
bool was_tried(const plan::Alternative& way) {
  return way.measured_ms.has_value() || (!way.refused.empty() && way.predicted_ms > 0);
}
bool any_was_tried(const std::vector<plan::Alternative>& choice) {
  return std::ranges::any_of(choice, was_tried);
}

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

// Without a rewrite the same program may come of another choice, and what was measured is no longer
// true of it.
CachedPlans cached_plans(const CompileOptions& options) {
  return options.rewrites == target::Rewrites{} ? options.cached : CachedPlans{};
}

// Empty without kernels.
Result<std::string> nvrtc_version(const plan::Program& program, const CompileOptions& options) {
  if (plan::sources_of(program).empty()) return std::string();
  return nvrtc::nvrtc_version(options.worker.cudnn_folder);
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

// Signature of a program being tried; empty without a cache.
std::string signature_of_try(const plan::Program& program, const CompileOptions& options) {
  if (cached_plans(options).cache == nullptr) return "";
  const Result<cache::Key> key = key_of(program, options);
  return key.ok() ? key->hash().to_hex() : "";
}

// A program that could not be built, its prediction, and Alternative::signature.
struct Failure {
  Refusal refusal;
  double predicted_ms = 0;
  std::string signature{};
};

std::vector<Refusal> refusals_of(const std::vector<Failure>& failed) {
  std::vector<Refusal> refusals;
  for (const Failure& failure : failed) refusals.push_back(failure.refusal);
  return refusals;
}

// Predicted time of a rejected candidate. One with a lower bound than the taken one's time was
// lowered; for the others the bound counts, whether they were lowered or not.
double predicted(const Candidate& candidate, const Candidate& taken) {
  const bool may_win = candidate.bound < taken.lowered->predicted_ms;
  return may_win && candidate.lowered ? candidate.lowered->predicted_ms : candidate.bound;
}

// One for each engine of which no strategy can express the attention, with its first reason. Slow
// ones are not expected to compete.
void add_refused_engines(const Candidates& candidates, std::vector<plan::Alternative>& all) {
  for (const engines::Engine& engine : engines::engines()) {
    const auto is_of_engine = [&engine](std::string_view strategy) {
      return planner::engine_of(strategy) == &engine;
    };
    if (engine.strategies.front().kind == Strategy::Kind::slow ||
        std::ranges::any_of(candidates.all(), is_of_engine,
                            [](const Candidate& candidate) { return candidate.strategy->name; })) {
      continue;
    }
    const auto refused =
        std::ranges::find_if(candidates.all_refused(), is_of_engine, &Refusal::lowering);
    if (refused == candidates.all_refused().end()) continue;
    all.push_back({refused->lowering, 0, {}, refused->error.message});
  }
}

// The one that was taken, and what else was considered: alone of its engine where all were
// predicted to take as long and none failed. `failed`: those that were tried before it, other
// programs of its strategy too; `predicted_ms`: of the program.
std::vector<plan::Alternative> choice(const Candidate& taken, double predicted_ms,
                                      const Candidates& candidates,
                                      const std::vector<Failure>& failed) {
  std::vector<plan::Alternative> all = {{std::string(taken.strategy->name), predicted_ms}};
  for (const auto& [refusal, of_program, signature] : failed) {
    if (refusal.lowering != taken.strategy->name) continue;
    all.push_back({refusal.lowering, of_program, {}, refusal.error.message, signature});
  }
  bool differ = false;
  for (const Candidate& candidate : candidates.all()) {
    if (candidate.strategy == taken.strategy) continue;
    if (candidate.strategy->kind == Strategy::Kind::slow) continue;
    plan::Alternative other{std::string(candidate.strategy->name), predicted(candidate, taken)};
    const bool same = other.predicted_ms == taken.lowered->predicted_ms;
    differ |= !same;
    const auto failure = std::ranges::find(
        failed, other.strategy, [](const Failure& each) { return each.refusal.lowering; });
    if (failure != failed.end()) {
      other.predicted_ms = failure->predicted_ms;
      other.refused = failure->refusal.error.message;
      other.signature = failure->signature;
      differ |= failure->refusal.error.code != ErrorCode::unsupported;
    }
    // Another form of the same kernel, which may not even apply, is no alternative to list.
    const bool is_form = same && candidate.strategy->kind == Strategy::Kind::alternative;
    if (!is_form || !other.refused.empty()) all.push_back(std::move(other));
  }
  const auto is_other = [&taken](const plan::Alternative& way) {
    return way.strategy != taken.strategy->name;
  };
  if (!differ) std::erase_if(all, is_other);
  add_refused_engines(candidates, all);
  for (const Refusal& each : candidates.left_out()) {
    all.push_back({each.lowering, 0, {}, each.error.message});
  }
  return all;
}

// The place of a strategy in the order of the engines.
std::ptrdiff_t place_of(std::string_view strategy) {
  const std::span<const Strategy> all = planner::strategies(planner::kAnyOrSlow);
  return std::ranges::find(all, strategy, &Strategy::name) - all.begin();
}

// A primary strategy that cannot express the attention is reported where a later one was taken.
std::vector<Refusal> reported(const std::vector<Refusal>& refused,
                              const std::vector<Failure>& failed, const Strategy& taken) {
  std::vector<Refusal> reported;
  for (const Refusal& refusal : refused) {
    if (taken.kind != Strategy::Kind::alternative &&
        place_of(refusal.lowering) < place_of(taken.name)) {
      reported.push_back(refusal);
    }
  }
  for (const Failure& failure : failed) {  // its other programs are in the plan's choice
    if (failure.refusal.lowering != taken.name) reported.push_back(failure.refusal);
  }
  return reported;
}

std::vector<RunnerUp> lowered_of(const Candidates& candidates, const Strategy& taken) {
  std::vector<RunnerUp> lowered;
  for (const Candidate& candidate : candidates.all()) {
    if (candidate.strategy == &taken || !candidate.lowered) continue;
    const plan::Program& program = candidate.lowered->program;
    lowered.push_back({std::string(candidate.strategy->name), plan::memory_of(program).total(),
                       !plan::steps_of<plan::CudnnStep>(program).empty()});
  }
  return lowered;
}

// A candidate to be tried, from this program of its strategy on (Strategy::lower_again).
struct Attempt {
  const Candidate* candidate = nullptr;
  std::size_t program = 0;
};

// Attempts in the order in which they are made. The one that the cache remembers as the fastest of
// all that were measured, or as the first that could be built, is first: what was refused before it
// is not compiled again.
class Tried {
 public:
  Tried(Candidates& candidates, const CompileOptions& options)
      : candidates_(candidates), options_(options) {}

  // Null: none left. Errors: those of Candidates::next.
  Result<Attempt> next() {
    if (!looked_) ATTN_RETURN_IF_ERROR(look_for_winner());
    if (!ahead_.empty()) {
      const Attempt attempt = ahead_.front();
      ahead_.erase(ahead_.begin());
      return attempt;
    }
    ATTN_ASSIGN(const Candidate* candidate, candidates_.next());
    return Attempt{candidate};
  }

  // Whether the remembered search would run the same today: each program as it would be compiled
  // now, and all engines that can serve, not only one that was named then.
  bool remembers(const std::vector<plan::Alternative>& choice) const {
    const bool same = std::ranges::all_of(choice, [this](const plan::Alternative& way) {
      return !was_tried(way) || signatures_.contains(way.signature);
    });
    return same && any_was_tried(choice) && compared_engines(choice);
  }

 private:
  // A plan in the cache of a program of ahead_[place].
  struct Known {
    std::size_t place = 0, program = 0;
    std::vector<plan::Alternative> choice;
  };

  Status look_for_winner() {
    looked_ = true;
    const CachedPlans cached = cached_plans(options_);
    if (options_.measure || cached.cache == nullptr || !cached.cache->files()) return {};
    while (true) {
      ATTN_ASSIGN(const Candidate* candidate, candidates_.next());
      if (candidate == nullptr) break;
      look_at(*candidate);
    }
    if (const Known* known = winner()) {
      ahead_[known->place].program = known->program;
      const auto place = ahead_.begin() + static_cast<std::ptrdiff_t>(known->place);
      std::rotate(ahead_.begin(), place, place + 1);
    }
    return {};
  }

  void look_at(const Candidate& candidate) {
    ahead_.push_back({&candidate});
    look_at(candidate, candidate.lowered->program, 0);
    for (std::size_t program = 1;; ++program) {
      const Result<Lowered> lowered = candidates_.lower_again(candidate, program);
      if (!lowered.ok()) return;
      look_at(candidate, lowered->program, program);
    }
  }

  void look_at(const Candidate& candidate, const plan::Program& program, std::size_t number) {
    const Result<cache::Key> key = key_of(program, options_);
    if (!key.ok()) return;
    signatures_.insert(key->hash().to_hex());
    const auto plan = cached_plans(options_).cache->files()->load(*key);
    if (!plan.ok() || !*plan || (*plan)->choice.empty()) return;
    if ((*plan)->choice.front().strategy != candidate.strategy->name) return;
    known_.push_back({ahead_.size() - 1, number, (*plan)->choice});
  }

  const Known* winner() const {
    const Known* built = nullptr;
    for (const Known& known : known_) {
      if (!remembers(known.choice)) continue;
      if (known.choice.front().measured_ms) return &known;
      if (built == nullptr) built = &known;
    }
    return built;
  }

  bool compared_engines(const std::vector<plan::Alternative>& choice) const {
    return std::ranges::all_of(candidates_.all(), [&choice](const Candidate& candidate) {
      const engines::Engine* const engine = planner::engine_of(candidate.strategy->name);
      return candidate.strategy->kind == Strategy::Kind::slow ||
             std::ranges::find(choice, engine, [](const plan::Alternative& way) {
               return planner::engine_of(way.strategy);
             }) != choice.end();
    });
  }

  Candidates& candidates_;
  const CompileOptions& options_;
  std::vector<Attempt> ahead_;
  std::set<std::string> signatures_;  // of all programs that may be tried
  std::vector<Known> known_;
  bool looked_ = false;
};

// `keeps_choice`: whether what was tried before it is remembered with the plan.
Status take_or_compile_steps(plan::Plan& plan, const CompileOptions& options, Limits& limits,
                             bool keeps_choice, const Tried& tried) {
  const CachedPlans cached = cached_plans(options);
  if (cached.cache == nullptr) return compile_steps(plan, options, limits);
  ATTN_ASSIGN(const cache::Key key, key_of(plan.program, options));
  ATTN_ASSIGN(const cache::PlanCache::Pointer found,
              cached.cache->get(key, [&]() -> Result<plan::Plan> {
                plan::Plan compiled = plan;
                if (!keeps_choice) compiled.choice.clear();
                ATTN_RETURN_IF_ERROR(compile_steps(compiled, options, limits));
                return compiled;
              }));
  plan = worded(plan, *found);
  if (tried.remembers(found->choice)) {
    plan.choice = found->choice;
    return {};
  }
  // A folder that cannot be written remembers nothing more.
  const bool tells_more =
      keeps_choice && any_was_tried(plan.choice) && found->choice != plan.choice;
  if (tells_more && cached.cache->files()) {
    static_cast<void>(cached.cache->files()->save(plan));
  }
  return {};
}

struct Taken {
  plan::Plan plan;
  const Candidate* candidate = nullptr;
};

// The first that `build` can build; `failed` gets those before it.
template <typename Build>
Result<Taken> first_built(Tried& tried, const Candidates& candidates, std::vector<Failure>& failed,
                          const Build& build) {
  while (true) {
    ATTN_ASSIGN(const Attempt attempt, tried.next());
    if (attempt.candidate == nullptr) break;
    Result<plan::Plan> plan = build(attempt);
    if (plan.ok()) return Taken{std::move(*plan), attempt.candidate};
    if (!may_try_another(plan.error())) break;
  }
  return candidates.all_failed(refusals_of(failed));
}

// Each program of each strategy, measured; the plan that takes least.
template <typename Build>
class Race {
 public:
  Race(const ir::Attention& attention, const CompileOptions& options, std::vector<Failure>& failed,
       const Build& build)
      : attention_(attention), options_(options), failed_(failed), build_(build) {}

  Result<Taken> run(Tried& tried, Candidates& candidates) {
    while (true) {
      ATTN_ASSIGN(const Attempt attempt, tried.next());
      if (attempt.candidate == nullptr) break;
      const Candidate& candidate = *attempt.candidate;
      candidates.deadline().restart();
      ATTN_RETURN_IF_ERROR(enter(candidate, *candidate.lowered));
      for (std::size_t program = 1;; ++program) {
        candidates.deadline().restart();
        const Result<Lowered> other = candidates.lower_again(candidate, program);
        if (!other.ok()) break;
        ATTN_RETURN_IF_ERROR(enter(candidate, *other));
      }
    }
    if (!best_) return candidates.all_failed(refusals_of(failed_));
    best_->plan.choice = std::move(all_);
    const CachedPlans cached = cached_plans(options_);
    if (cached.cache != nullptr && cached.cache->files()) {
      ATTN_RETURN_IF_ERROR(cached.cache->files()->save(best_->plan));
    }
    return std::move(*best_);
  }

 private:
  // Errors: those after which no other may be tried, and of the measurement.
  Status enter(const Candidate& candidate, const Lowered& lowered) {
    plan::Alternative each{std::string(candidate.strategy->name), lowered.predicted_ms};
    each.signature = signature_of_try(lowered.program, options_);
    Result<plan::Plan> plan = build_(candidate, lowered);
    if (!plan.ok()) {
      if (!may_try_another(plan.error())) return plan.error();
      failed_.push_back({{each.strategy, plan.error()}, each.predicted_ms, each.signature});
      each.refused = plan.error().message;
      all_.push_back(std::move(each));
      return {};
    }
    ATTN_ASSIGN(each.measured_ms, options_.measure(attention_, *plan));
    const bool first = !best_ || *each.measured_ms < *all_.front().measured_ms;
    all_.insert(first ? all_.begin() : all_.end(), std::move(each));
    if (first) best_ = Taken{std::move(*plan), &candidate};
    return {};
  }

  const ir::Attention& attention_;
  const CompileOptions& options_;
  std::vector<Failure>& failed_;
  const Build& build_;
  std::optional<Taken> best_;
  std::vector<plan::Alternative> all_;
};

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

Result<Compiled> compile(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  plan::Plan words;
  words.spec_name = attention.name;
  words.spec_text = standing_alone(source);
  words.bindings = bindings;
  words.without = target::without(options.rewrites);
  ATTN_ASSIGN(const planner::OfPair pair, lowering_of(attention, options));
  Candidates candidates(attention, pair, context_of(options));
  Tried tried(candidates, options);
  std::vector<Failure> failed;
  Limits limits;
  const auto compiled = [&](const Candidate& candidate,
                            const Lowered& lowered) -> Result<plan::Plan> {
    plan::Plan plan = words;
    plan.shape = shape_of(source, bindings, attention, lowered.program);
    plan.choice = choice(candidate, lowered.predicted_ms, candidates, failed);
    plan.strategy = candidate.strategy->name;
    plan.parts = lowered.parts;
    plan.program = lowered.program;
    ATTN_ASSIGN(plan.nvrtc_version, nvrtc_version(plan.program, options));
    // Transient failures, such as a worker timeout, are retried.
    const bool lasting = std::ranges::all_of(failed, [](const Failure& each) {
      return each.refusal.error.code == ErrorCode::unsupported;
    });
    limits = {lowered.limits, &candidates.deadline()};
    const target::Deadline::Phase phase(&candidates.deadline(), "compiling kernels");
    const Status made = take_or_compile_steps(plan, options, limits, lasting, tried);
    if (!made.ok()) return with_phases(made.error(), candidates.deadline());
    return plan;
  };
  // The first of its programs that is not refused. If one spills far too much, or several spill,
  // those behind them would, too. All of them are one build.
  const auto build = [&](const Attempt& attempt) -> Result<plan::Plan> {
    const Candidate& candidate = *attempt.candidate;
    Result<Lowered> lowered = *candidate.lowered;
    candidates.deadline().restart();
    if (attempt.program > 0) lowered = candidates.lower_again(candidate, attempt.program);
    int spilling = 0;
    for (std::size_t next = attempt.program + 1; lowered.ok(); ++next) {
      Result<plan::Plan> plan = compiled(candidate, *lowered);
      if (plan.ok()) return plan;
      failed.push_back({{std::string(candidate.strategy->name), plan.error()},
                        lowered->predicted_ms,
                        signature_of_try(lowered->program, options)});
      if (!is_refused(plan)) return plan;
      spilling += limits.spilled_bytes > 0 ? 1 : 0;
      if (limits.spilled_bytes > nvrtc::kHopelessBytes || spilling == kMostSpilling) break;
      lowered = candidates.lower_again(candidate, next);
    }
    if (!lowered.ok() && lowered.error().code == ErrorCode::worker) {  // it took too long
      failed.push_back({{std::string(candidate.strategy->name), lowered.error()},
                        candidate.lowered->predicted_ms});
    }
    return failed.back().refusal.error;
  };
  ATTN_ASSIGN(Taken taken, options.measure
                               ? Race(attention, options, failed, compiled).run(tried, candidates)
                               : first_built(tried, candidates, failed, build));
  const Strategy& strategy = *taken.candidate->strategy;
  return Compiled{std::move(taken.plan), reported(candidates.refused(), failed, strategy),
                  planner::in_order(candidates.all_refused()), lowered_of(candidates, strategy)};
}

// Compiles the spec again, not the stored program: what is emitted may have changed since.
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
  how.rewrites = target::all_but(plan.without, options.rewrites);
  const bool pair = how.direction == plan::Direction::forward && makes_o_and_lse(plan);
  return compile(pair ? training_forward(*attention) : *attention, source, plan.bindings, how);
}

Result<Lowered> lowered_again(const ir::Attention& attention, const plan::Plan& plan) {
  CompileOptions how;
  how.target = plan.target;
  how.rewrites = target::all_but(plan.without);
  const ir::Attention planned = makes_o_and_lse(plan) ? training_forward(attention) : attention;
  Candidates candidates(planned, plan.strategy, context_of(how));
  ATTN_ASSIGN(const Candidate* candidate, candidates.next());
  const std::string wanted = plan::canonical_text(plan.program);
  Result<Lowered> lowered = *candidate->lowered;
  for (std::size_t next = 1; lowered.ok(); ++next) {
    if (plan::canonical_text(lowered->program) == wanted) return lowered;
    lowered = candidates.lower_again(*candidate, next);
  }
  return Error{ErrorCode::unsupported,
               "this version of attnc makes another program of the plan's spec",
               {"compile the spec again, or draw the mask alone"},
               {}};
}

}  // namespace attn::driver
