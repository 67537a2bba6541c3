// The order of the phases; nobody else knows it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/planner/pair.h"
#include "compiler/sema/analyze.h"
#include "runtime/plan/bundle.h"
#include "runtime/worker/worker.h"

namespace attn::cache {
class PlanCache;
}

namespace attn::driver {

// Source text (DSL or JSON: Source::is_json) -> simplified, verified IR. Nothing when the
// sink has errors. What it has to know of masks is kept in `analyses`, if given, for compile().
// What is wrong with the defaults of `replaced` tensors, whose values the caller gives, is not
// reported.
std::optional<ir::Attention> front_end(const support::Source& source,
                                       const sema::Bindings& bindings, diag::Sink& sink,
                                       masks::MaskAnalyses* analyses = nullptr,
                                       const std::set<std::string, std::less<>>& replaced = {});

// The front end for every plan that a spec asks for (sema::variants), which is parsed once, up to
// the first with errors.
struct Variant {
  sema::Bindings bindings;
  ir::Attention attention;
};
std::vector<Variant> front_end_of_all_sizes(const support::Source& source,
                                            const sema::Bindings& bindings, diag::Sink& sink,
                                            masks::MaskAnalyses* analyses = nullptr);

// "Sq=1024 B=2": what a variant adds to the bindings; empty when it is the only one.
std::string words_of(const sema::Bindings& variant, const sema::Bindings& bindings);

// The same, but only the first is kept. When all together take too much work, the last are left out
// (Sink::is_stopped).
struct CheckedSizes {
  std::optional<ir::Attention> first;  // nothing when the sink has errors
  std::size_t plans = 1;
  std::size_t looked_at = 0;  // of them, without errors
};
CheckedSizes check_all_sizes(const support::Source& source, const sema::Bindings& bindings,
                             diag::Sink& sink);

// One for each plan that the spec asks for (sema::variants); `bindings` alone for text that does
// not parse.
std::vector<sema::Bindings> variants(const support::Source& source, const sema::Bindings& bindings);

// The functions of a library (a file without an attention), checked: how many there are. Nothing,
// and nothing reported, for any other file; nothing when the sink has errors.
std::optional<std::size_t> check_library(const support::Source& source, diag::Sink& sink);

// The spec's text; when it imports anything, printed anew with that written into it.
std::string standing_alone(const support::Source& source);

// IR -> the program with the lowest predicted time, without asking cuDNN. `lowering` is "auto" or
// one of planner::strategy_names() or engine_names(). Errors: unsupported (with the reason and what
// would work), invalid_argument when a dimension is still open (the message names it and the --bind
// that closes it).
Result<plan::Program> lower(const ir::Attention& attention, std::string_view lowering,
                            const target::Context& context);
// The same for an H200.
Result<plan::Program> lower(const ir::Attention& attention,
                            std::string_view lowering = planner::kAnyLowering,
                            plan::Direction direction = plan::Direction::forward,
                            target::Rewrites made = {});

// Where compiled plans are looked for, and kept.
struct CachedPlans {
  std::shared_ptr<cache::PlanCache> cache;  // null: nowhere
  // The worker's cuDNN version; called only for plans with cuDNN steps.
  std::function<Result<std::int64_t>()> cudnn_version{};
};

// Which programs are measured before one becomes the plan. Predictions err by a few percent, so the
// best of them may be slower than another that was predicted to take about as long.
enum class Autotune : std::uint8_t {
  never,
  near,  // the best of each engine that is predicted to take about as long as the best of all
  all    // every program of every strategy but slow ones
};

struct CompileOptions {
  plan::Target target;
  worker::Options worker;
  CachedPlans cached{};
  std::string lowering{planner::kAnyLowering};  // or the one that must do
  plan::Direction direction = plan::Direction::forward;
  masks::MaskAnalyses* analyses = nullptr;  // made so far, as in target::Context
  target::Rewrites rewrites{};  // those to make; when one is not, `cached` is left alone
  bool paired = false;          // half of a training pair, whatever the spec's gradients say
  // What is measured becomes the plan if it takes least, and is kept in `cached` as such.
  Autotune autotune = Autotune::never;
  // The milliseconds of one execute on the device that the target is; needed unless nothing is
  // measured. It is given the attention that the plan computes. An error ends the build with `all`;
  // with `near` the prediction decides.
  std::function<Result<double>(const ir::Attention&, const plan::Plan&)> measure{};
};

// A strategy that was lowered beside the one that was taken.
struct RunnerUp {
  std::string strategy;
  // Bytes without bound tensors; without cuDNN's workspace, unknown before the build.
  std::int64_t workspace_bytes = 0;
  bool has_cudnn = false;
};

struct Compiled {
  plan::Plan plan;
  std::vector<planner::Refusal> refused;  // those asked before it
  // What was not taken, in the order of the engines; empty for a plan that was loaded:
  std::vector<planner::Refusal> inexpressible{};  // all strategies that cannot express it
  std::vector<RunnerUp> lowered{};
};

// What planning decides by with these options.
target::Context context_of(const CompileOptions& options);

// The search for the program by options.lowering (a strategy or an engine), or by the engine of
// both directions where they must draw the same random numbers (planner::Pair): of a backward, of a
// spec with gradients, and of what is `paired`. Errors: those of Pair::search.
Result<std::unique_ptr<planner::Search>> search_of(const ir::Attention& attention,
                                                   const CompileOptions& options);

// IR -> programs -> plan, in worker processes: strategies are asked in their order, and the first
// that can be built is the plan; one whose worker dies or takes too long is passed over as one that
// is refused. It keeps the spec's text, with what it imports written into it.
// Cached plans are reused; measured ones are tried first. Errors: unsupported, with every
// strategy's reason, when none is taken; others of lowering and worker::compile.
Result<Compiled> compile(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options);
// The same of what is searched, by the search of search_of, which begins again.
Result<Compiled> compile(planner::Search& search, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options);

// The forward of a training pair: o and, with softmax, lse are among its outputs. The backward of
// softmax reads both.
ir::Attention training_forward(ir::Attention attention);

// The two plans of a training pair: that of training_forward, and the backward; options.direction
// is ignored. With random dropout, both are of one engine (planner::Pair). Errors: those of
// compile, with "forward: " or "backward: " before the message.
Result<std::vector<Compiled>> compile_pair(const ir::Attention& attention,
                                           const support::Source& source,
                                           const sema::Bindings& bindings,
                                           const CompileOptions& options);

// The plan's spec and bindings for another device or cuDNN version: `--recompile` of a plan file.
// Direction (whatever options.direction is) and outputs are the plan's. Errors: those of compile;
// invalid_spec when the spec no longer passes the front end.
Result<Compiled> recompile(const plan::Plan& plan, const CompileOptions& options);

// What a forward plan was lowered to, with what its kernels compute. Errors: unsupported when this
// version of attnc makes another program of the plan's spec, which is `attention`.
Result<planner::Lowered> lowered_again(const ir::Attention& attention, const plan::Plan& plan);

// Each of a file's plans. Errors: as above; when there are several, as those of compile_pair.
Result<std::vector<Compiled>> recompile(const plan::Bundle& bundle, const CompileOptions& options);

// What goes into one file.
plan::Bundle bundle_of(const std::vector<Compiled>& compiled);

// Fails if a spec from a plan file has imports. attnc inlines imports when it writes a plan, so
// such a plan was written by another program, and could have files of its author's choice read on
// the machine where the plan is inspected. Errors: plan_damaged, naming the import.
Status check_stands_alone(const support::Source& source);

}  // namespace attn::driver
