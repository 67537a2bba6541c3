#include <fmt/format.h>

#include <algorithm>

#include "compiler/derive/nvrtc.h"
#include "compiler/driver/driver.h"
#include "compiler/driver/imports.h"
#include "compiler/driver/shape.h"
#include "runtime/base/spec_form.h"
#include "runtime/cache/plan_cache.h"

namespace attn::driver {
namespace {

Error two_versions(std::int64_t first, std::int64_t second) {
  return {ErrorCode::worker,
          fmt::format("cuDNN changed from version {} to {} while the program was being compiled",
                      first, second),
          {},
          {}};
}

// Of the kernels, in the order in which a plan has them.
std::vector<const std::string*> sources_of(const plan::Program& program) {
  std::vector<const std::string*> sources;
  for (const plan::DeriveStep* step : plan::steps_of<plan::DeriveStep>(program)) {
    sources.push_back(&step->source);
  }
  if (program.check) sources.push_back(&program.check->source);
  return sources;
}

// Fills in what depends on the target: compiled steps, cuDNN's version, signature.
Status compile_steps(plan::Plan& plan, const CompileOptions& options) {
  plan.target = options.target;
  plan.compiled.clear();
  plan.kernels.clear();
  plan.cudnn_version = 0;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(plan.program)) {
    ATTN_ASSIGN(worker::Compiled compiled,
                worker::compile(step->graph, options.target.device_json, options.worker));
    if (plan.cudnn_version != 0 && plan.cudnn_version != compiled.cudnn_version) {
      return two_versions(plan.cudnn_version, compiled.cudnn_version);
    }
    plan.cudnn_version = compiled.cudnn_version;
    plan.compiled.push_back(std::move(compiled.step));
  }
  // Last, since they are never refused.
  for (const std::string* source : sources_of(plan.program)) {
    ATTN_ASSIGN(std::string image,
                derive::compile_kernel(*source, options.target.sm, options.worker.cudnn_folder));
    plan.kernels.push_back(std::move(image));
  }
  if (plan.cudnn_version == 0) {  // no step of cuDNN's
    ATTN_ASSIGN(plan.cudnn_version, worker::cudnn_version(options.worker));
  }
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
  if (!was_tried(plan.choice)) plan.choice = words.choice;
  return plan;
}

// Without a rewrite the same program may come of another choice, and what was measured is no longer
// true of it.
CachedPlans cached_plans(const CompileOptions& options) {
  return options.rewrites == passes::Rewrites{} ? options.cached : CachedPlans{};
}

Status take_or_compile_steps(plan::Plan& plan, const CompileOptions& options) {
  const CachedPlans cached = cached_plans(options);
  if (cached.cache == nullptr) return compile_steps(plan, options);
  const cache::Key key(plan::signature_of(plan.program, options.target, cached.cudnn_version));
  ATTN_ASSIGN(const cache::PlanCache::Pointer found,
              cached.cache->get(key, [&]() -> Result<plan::Plan> {
                plan::Plan compiled = plan;
                ATTN_RETURN_IF_ERROR(compile_steps(compiled, options));
                return compiled;
              }));
  plan = worded(plan, *found);
  return {};
}

// None where all were thought to take as long and none failed. `refused`: those that were asked
// before the one that was taken.
std::vector<plan::Alternative> choice(const Candidate& taken, const std::vector<Candidate>& all,
                                      const std::vector<Refusal>& refused) {
  std::vector<plan::Alternative> ways = {
      {std::string(taken.way->name), taken.lowered.predicted_ms}};
  bool differ = false;
  for (const Candidate& candidate : all) {
    differ |= candidate.lowered.predicted_ms != taken.lowered.predicted_ms;
    if (candidate.way == taken.way || candidate.way->slow) continue;
    plan::Alternative way{std::string(candidate.way->name), candidate.lowered.predicted_ms};
    const auto refusal = std::ranges::find(refused, way.lowering, &Refusal::lowering);
    if (refusal != refused.end()) {
      way.refused = refusal->error.message;
      differ |= refusal->error.code != ErrorCode::unsupported;
    }
    ways.push_back(std::move(way));
  }
  return differ ? ways : std::vector<plan::Alternative>();
}

// That a way has no form is told of those that stand before the one that was taken.
std::vector<Refusal> told(const std::vector<Refusal>& refused, std::size_t without_form,
                          std::string_view taken) {
  std::vector<Refusal> told;
  const std::span<const Lowering> all = lowerings(kAnyOrSlow);
  const auto place = [&](std::string_view name) {
    return std::ranges::find(all, name, &Lowering::name);
  };
  for (std::size_t i = 0; i < refused.size(); ++i) {
    const bool before = !place(taken)->other && place(refused[i].lowering) < place(taken);
    if (i >= without_form || before) told.push_back(refused[i]);
  }
  return told;
}

// Which way was found to be the fastest when all were measured, or to be the first that could be
// built, where the cache remembers it.
void winner_first(std::vector<Candidate>& found, const CompileOptions& options) {
  const CachedPlans cached = cached_plans(options);
  if (cached.cache == nullptr || !cached.cache->files()) return;
  const auto won = [&](const Candidate& candidate) {
    const cache::Key key(
        plan::signature_of(candidate.lowered.program, options.target, cached.cudnn_version));
    const auto plan = cached.cache->files()->load(key);
    if (!plan.ok() || !*plan) return false;
    return was_tried((*plan)->choice) && (*plan)->choice.front().lowering == candidate.way->name;
  };
  const auto winner = std::ranges::find_if(found, won);
  if (winner != found.end()) std::rotate(found.begin(), winner, winner + 1);
}

// The plan that takes least when it is measured.
template <typename Attempt>
Result<plan::Plan> fastest(const ir::Attention& attention, const std::vector<Candidate>& found,
                           const CompileOptions& options, std::vector<Refusal>& refused,
                           const Attempt& attempt) {
  std::optional<plan::Plan> best;
  std::vector<plan::Alternative> ways;
  for (const Candidate& candidate : found) {
    plan::Alternative way{std::string(candidate.way->name), candidate.lowered.predicted_ms};
    Result<plan::Plan> plan = attempt(candidate);
    if (!plan.ok()) {
      if (!may_try_another(plan.error())) return plan.error();
      refused.push_back({way.lowering, plan.error()});
      way.refused = plan.error().message;
      ways.push_back(std::move(way));
      continue;
    }
    ATTN_ASSIGN(way.measured_ms, options.measure(attention, *plan));
    const bool first = !best || *way.measured_ms < *ways.front().measured_ms;
    ways.insert(first ? ways.begin() : ways.end(), std::move(way));
    if (first) best = std::move(*plan);
  }
  if (!best) return error_of(in_order(refused));
  best->choice = std::move(ways);
  const CachedPlans cached = cached_plans(options);
  if (cached.cache != nullptr && cached.cache->files()) {
    ATTN_RETURN_IF_ERROR(cached.cache->files()->save(*best));
  }
  return std::move(*best);
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
                            plan::Direction direction, passes::Rewrites made) {
  std::vector<Refusal> refused;
  ATTN_ASSIGN(std::vector<Candidate> found,
              candidates(attention, lowering, direction, refused, made));
  return std::move(found.front().lowered.program);
}

Result<Compiled> compile(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  Compiled compiled;
  compiled.plan.spec_name = attention.name;
  compiled.plan.spec_text = standing_alone(source);
  compiled.plan.bindings = bindings;
  ATTN_ASSIGN(std::vector<Candidate> found,
              candidates(attention, options.lowering, options.direction, compiled.refused,
                         options.rewrites));
  const std::size_t without_form = compiled.refused.size();
  const auto attempt = [&](const Candidate& candidate) -> Result<plan::Plan> {
    plan::Plan plan = compiled.plan;
    plan.program = candidate.lowered.program;
    plan.shape = shape_of(source, bindings, attention, plan.program);
    plan.choice = choice(candidate, found, compiled.refused);
    ATTN_RETURN_IF_ERROR(take_or_compile_steps(plan, options));
    compiled.lowering = candidate.way->name;
    return plan;
  };
  if (options.measure) {
    ATTN_ASSIGN(compiled.plan, fastest(attention, found, options, compiled.refused, attempt));
    compiled.lowering = compiled.plan.choice.front().lowering;
  } else {
    winner_first(found, options);
    ATTN_ASSIGN(compiled.plan, first_taken(found, compiled.refused, attempt));
  }
  compiled.refused = told(compiled.refused, without_form, compiled.lowering);
  const auto taken = std::ranges::find(found, compiled.lowering,
                                       [](const Candidate& each) { return each.way->name; });
  compiled.parts = std::move(taken->lowered.parts);
  return compiled;
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
  const bool pair = how.direction == plan::Direction::forward && makes_o_and_lse(plan);
  return compile(pair ? training_forward(*attention) : *attention, source, plan.bindings, how);
}

}  // namespace attn::driver
