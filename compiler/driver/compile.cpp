#include <algorithm>

#include "compiler/driver/build.h"
#include "compiler/driver/choice.h"
#include "compiler/driver/remembered.h"
#include "compiler/driver/shape.h"
#include "runtime/base/spec_form.h"

namespace attn::driver {
namespace {

using planner::Candidate;
using planner::Search;

constexpr std::ptrdiff_t kMostSpilling = 5;  // programs of a strategy
// Times the least predicted time: where programs are measured. Of 234 measured pairs of engines, in
// none with a larger ratio of predictions was the one that was taken more than 5 % behind.
constexpr double kNear = 1.25;

// The error of a worker that the end of the build killed says what took the time before.
Error with_phases(Error error, const target::Deadline& deadline) {
  const Status late = deadline.check();
  if (error.code != ErrorCode::worker || late.ok()) return error;
  if (error.message != late.error().message) error.notes.push_back(late.error().message);
  return error;
}

// Builds candidates until one is taken.
class Build {
 public:
  Build(Search& search, const support::Source& source, const sema::Bindings& bindings,
        const CompileOptions& options)
      : search_(search),
        options_(options),
        padded_(paddable_dims(source, bindings, search.attention())),
        remembered_(options) {
    words_.spec_name = search.attention().name;
    words_.spec_text = standing_alone(source);
    words_.bindings = bindings;
    words_.without = target::without(options.rewrites);
  }

  Result<Compiled> run() {
    ATTN_RETURN_IF_ERROR(remembered_.begin(search_));
    ATTN_ASSIGN(plan::Plan plan, best());
    return with_others(std::move(plan), search_, *taken_->strategy);
  }

 private:
  Result<plan::Plan> best() {
    if (options_.autotune == Autotune::all) return fastest();
    return options_.autotune == Autotune::near ? fastest_of_near() : first();
  }

  // The first that can be built. A program that is refused is followed by the strategy's next one;
  // if it spills far too much, or several spill, those behind them would, too. All of a strategy's
  // are one build.
  Result<plan::Plan> first() {
    return search_.first_taken([this](Candidate& candidate) {
      Result<plan::Plan> plan = built(candidate);
      if (plan.ok()) {
        taken_ = &candidate;
        return plan;
      }
      candidate.signature = remembered_.signature_of(candidate.lowered->program);
      const bool is_refused = plan.error().code == ErrorCode::unsupported;
      if (is_refused && next_may_fit(candidate)) search_.add_next_of(candidate);
      return plan;
    });
  }

  bool next_may_fit(const Candidate& candidate) {
    if (limits_.spilled_bytes > nvrtc::kHopelessBytes) return false;
    if (limits_.spilled_bytes > 0) spilling_.push_back(candidate.strategy);
    return std::ranges::count(spilling_, candidate.strategy) < kMostSpilling;
  }

  // The one that takes least of all programs of all strategies. Each is a build.
  Result<plan::Plan> fastest() {
    std::optional<plan::Plan> best;
    while (true) {
      search_.deadline().restart();
      ATTN_ASSIGN(Candidate* const candidate, search_.next());
      if (candidate == nullptr) break;
      search_.add_next_of(*candidate);
      candidate->signature = remembered_.signature_of(candidate->lowered->program);
      Result<plan::Plan> plan = built(*candidate);
      if (!plan.ok()) {
        if (!planner::may_try_another(plan.error())) return plan.error();
        search_.failed(*candidate, plan.error());
        continue;
      }
      ATTN_ASSIGN(const double ms, options_.measure(search_.attention(), *plan));
      search_.measured(*candidate, ms);
      if (taken_ != nullptr && ms >= *taken_->measured_ms) continue;
      taken_ = candidate;
      best = std::move(*plan);
    }
    if (!best) return search_.all_failed();
    best->choice = choice_of_measured(search_);
    ATTN_RETURN_IF_ERROR(remembered_.keep(*best));
    return std::move(*best);
  }

  // The first, or the best of another engine that is predicted to take about as long, if it takes
  // less. What is remembered as measured is not measured again.
  Result<plan::Plan> fastest_of_near() {
    ATTN_ASSIGN(plan::Plan predicted, first());
    if (predicted.choice.front().measured_ms) return predicted;
    taken_->signature = remembered_.signature_of(taken_->lowered->program);
    std::vector<Built> near = {{taken_, predicted}};
    while (Candidate* const rival = next_rival(near)) {
      rival->signature = remembered_.signature_of(rival->lowered->program);
      Result<plan::Plan> plan = built(*rival);
      if (plan.ok()) near.push_back({rival, std::move(*plan)});
      if (!plan.ok()) search_.failed(*rival, plan.error());
    }
    if (near.size() == 1) return predicted;
    for (const auto& [candidate, plan] : near) {
      const Result<double> ms = options_.measure(search_.attention(), plan);
      if (!ms.ok()) return predicted;
      search_.measured(*candidate, *ms);
    }
    const auto fastest = std::ranges::min_element(
        near, {}, [](const Built& each) { return *each.candidate->measured_ms; });
    taken_ = fastest->candidate;
    fastest->plan.choice = choice_of(search_, *taken_);
    ATTN_RETURN_IF_ERROR(remembered_.keep(fastest->plan));
    return std::move(fastest->plan);
  }

  struct Built {
    Candidate* candidate;
    plan::Plan plan;
  };

  // The next best program that is predicted to take about as long as the first of `near`, of an
  // engine that is not among them; null if there is none.
  Candidate* next_rival(const std::vector<Built>& near) {
    const auto engine_of = [](const Candidate& each) {
      return planner::engine_of(each.strategy->name);
    };
    while (true) {
      const Result<Candidate*> rival = search_.next();
      if (!rival.ok() || *rival == nullptr) return nullptr;
      const double ms = (*rival)->compared_ms();
      const bool is_usual = (*rival)->turn() == planner::Candidate::Turn::usual;
      if (!is_usual || ms > kNear * near.front().candidate->compared_ms()) return nullptr;
      if (std::ranges::none_of(near, [&](const Built& each) {
            return engine_of(*each.candidate) == engine_of(**rival);
          })) {
        return *rival;
      }
    }
  }

  Result<plan::Plan> built(const Candidate& candidate) {
    const plan::Program& program = candidate.lowered->program;
    plan::Plan plan = words_;
    plan.shape = shape_of(search_.attention(), padded_, program);
    plan.choice = choice_of(search_, candidate);
    plan.strategy = candidate.strategy->name;
    plan.parts = candidate.lowered->parts;
    plan.program = program;
    ATTN_ASSIGN(plan.nvrtc_version, nvrtc_version(program, options_));
    // Transient failures, such as a worker timeout, are retried.
    const bool lasting = std::ranges::all_of(search_.tried(), [](const Candidate* each) {
      return !each->failed || each->failed->code == ErrorCode::unsupported;
    });
    target::Deadline& deadline = search_.deadline();
    limits_ = {candidate.lowered->limits, &deadline};
    const target::Deadline::Phase phase(&deadline, "compiling kernels");
    const Status made = remembered_.take_or_compile(plan, limits_, lasting);
    if (!made.ok()) return with_phases(made.error(), deadline);
    return plan;
  }

  Search& search_;
  const CompileOptions& options_;
  const std::vector<plan::Dim> padded_;
  Remembered remembered_;
  plan::Plan words_;                                // for people, the same in all plans
  Limits limits_;                                   // of the program that was built last
  std::vector<const planner::Strategy*> spilling_;  // of each program that spilled
  Candidate* taken_ = nullptr;
};

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

Result<Compiled> compile(Search& search, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  return Build(search, source, bindings, options).run();
}

Result<Compiled> compile(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  ATTN_ASSIGN(const std::unique_ptr<Search> search, search_of(attention, options));
  return compile(*search, source, bindings, options);
}

// Compiles the spec again, not the stored program: what is emitted may have changed since.
Result<Compiled> recompile(const plan::Plan& plan, const CompileOptions& options) {
  const bool json = is_json_spec(plan.spec_text);
  const support::Source source(plan.spec_name + (json ? ".attn.json" : ".attn"), plan.spec_text);
  ATTN_RETURN_IF_ERROR(check_stands_alone(source));
  diag::Sink sink(source);
  const std::optional<ir::Attention> attention = front_end(source, plan.bindings, sink);
  if (!attention) {
    return Error{
        ErrorCode::invalid_spec, "the spec in the plan file is refused now", {diag::to_text(sink)}};
  }
  CompileOptions how = options;
  how.direction = plan::direction_of(plan.program);
  how.rewrites = target::all_but(plan.without, options.rewrites);
  const bool pair = how.direction == plan::Direction::forward && makes_o_and_lse(plan);
  return compile(pair ? training_forward(*attention) : *attention, source, plan.bindings, how);
}

Result<planner::Lowered> lowered_again(const ir::Attention& attention, const plan::Plan& plan) {
  CompileOptions how;
  how.target = plan.target;
  how.rewrites = target::all_but(plan.without);
  const ir::Attention planned = makes_o_and_lse(plan) ? training_forward(attention) : attention;
  Search search(planned, plan.strategy, context_of(how));
  const std::string wanted = plan::canonical_text(plan.program);
  while (true) {
    ATTN_ASSIGN(Candidate* const candidate, search.next());
    if (candidate == nullptr) break;
    if (plan::canonical_text(candidate->lowered->program) == wanted) return *candidate->lowered;
    search.add_next_of(*candidate);
  }
  return Error{ErrorCode::unsupported,
               "this version of attnc makes another program of the plan's spec",
               {"compile the spec again, or draw the mask alone"}};
}

}  // namespace attn::driver
