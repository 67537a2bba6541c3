#include <fmt/format.h>

#include <algorithm>

#include "tools/command.h"
#include "tools/console.h"
#include "tools/explaining.h"
#include "tools/plans.h"
#include "tools/ranks.h"
#include "tools/report.h"

namespace attn::tools {
namespace explain_command {
namespace {

struct Options {
  std::string path;
  sema::Bindings bindings;
  Edits edits;
  ExplainOptions how;
  RankOptions ranks;
  bool yes = false;
  bool gradients = false;
  Format format = Format::text;
};

// The exit code is that of `attnc compile`: a pair is refused if either direction is.
int print(const Options& options, const Explanation& explanation) {
  if (options.format == Format::json) {
    print_json(to_json(explanation));
  } else {
    fmt::print("{}", to_text(explanation));
  }
  const auto is_refused = [](const std::optional<ExplainedProgram>& program) {
    return program && program->refusal;
  };
  return is_refused(explanation.forward) || is_refused(explanation.backward) ? kUnsupported : kOk;
}

// An error where warnings are denied.
std::optional<Error> report_memory(const Options& options, const Spec& spec,
                                   const Explanation& explanation) {
  diag::Sink sink(*spec.source);
  warn_of_memory(spec, explanation, sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  return report_denied(sink, options.format);
}

ExplainOptions how_of(const Options& options) {
  ExplainOptions how = options.how;
  if (options.gradients) how.gradients = true;
  return how;
}

int explain_spec(const Options& options) {
  SpecOutcome outcome =
      read_spec(options.path, options.bindings, options.format, {}, options.edits);
  if (!outcome.spec) return outcome.exit_code;
  const auto explanation = explain_attention(how_of(options), *outcome.spec);
  if (explanation.ok()) {
    if (report_memory(options, *outcome.spec, *explanation)) return kSpecHasErrors;
    return print(options, *explanation);
  }
  return report(explanation.error(), options.format, outcome.spec->source.get());
}

int explain_ranks(const Options& options) {
  SpecOutcome outcome = read_spec(options.path, options.bindings, options.format,
                                  options.ranks.inputs, options.edits);
  if (!outcome.spec) return outcome.exit_code;
  const Spec& spec = *outcome.spec;
  const auto sharded = shard(spec, options.ranks, options.how.target, options.gradients);
  if (!sharded.ok()) return report(sharded.error(), options.format, spec.source.get());
  Simulated simulated{{}, true};
  if (options.ranks.simulates) {
    auto found = simulate(**sharded, options.ranks.inputs, options.yes);
    if (!found.ok()) return report(found.error(), options.format, spec.source.get());
    simulated = std::move(*found);
  }
  const Differences& differences = simulated.differences;
  if (options.format == Format::json) {
    Json json = to_json(**sharded);
    if (options.ranks.simulates) json["differences"] = differences;
    print_json(json);
  } else {
    fmt::print("{}", to_text(**sharded));
    for (const auto& [name, difference] : differences)
      fmt::print("{}{} {:.1e}",
                 name == differences.begin()->first
                     ? "\n  simulated: largest differences from the reference: "
                     : ", ",
                 name, difference);
    if (options.ranks.simulates) fmt::print("\n");
  }
  if (simulated.equal) return kOk;
  tell_warning("the results of the ranks are not those of the reference");
  return kMismatch;
}

int explain_plan(const Options& options) {
  const Result<plan::Bundle> bundle = read_shape(options.path, options.bindings);
  if (!bundle.ok()) return report(bundle.error(), options.format);
  SpecOutcome outcome = spec_of_plan(options.path, bundle->plans.front(), options.format);
  if (!outcome.spec) return outcome.exit_code;
  return print(options,
               explain_plans(*outcome.spec, *bundle, options.gradients, options.how.limits));
}

int run(const Options& options) {
  if (options.ranks.simulates && options.ranks.ranks == 0) {
    return report({ErrorCode::invalid_argument, "--simulate needs --ranks"}, options.format);
  }
  if (options.yes && !options.ranks.simulates) {
    return report({ErrorCode::invalid_argument, "--yes needs --simulate"}, options.format);
  }
  const auto links = links_of(options.ranks);
  if (!links.ok()) return report(links.error(), options.format);
  if (options.ranks.ranks > 0 && is_plan(options.path)) {
    return report({ErrorCode::invalid_argument, "--ranks needs a spec, not a plan"},
                  options.format);
  }
  if (options.ranks.ranks > 0 &&
      (options.how.why_not || options.how.lowering != planner::kAnyLowering)) {
    return report(
        {ErrorCode::invalid_argument,
         "--why-not, --engine, --strategy and --allow-unfused have no meaning with --ranks"},
        options.format);
  }
  if (options.ranks.ranks > 0) return explain_ranks(options);
  if (!is_plan(options.path)) return explain_spec(options);
  if (!options.edits.empty()) return report(refused_of_plan(options.edits), options.format);
  if (!options.how.target.empty()) {
    return report(
        {ErrorCode::invalid_argument, "--target has no meaning for a plan: it has its own"},
        options.format);
  }
  return explain_plan(options);
}

}  // namespace
}  // namespace explain_command

void add_explain(CLI::App& app, Action& action) {
  using namespace explain_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "explain", "Show what becomes of each clause: graph nodes, mask, engine, work");
  add_subject(*command, options->path);
  add_target_option(*command, options->how.target);
  add_bind(*command, options->bindings);
  add_edits(*command, options->edits);
  command->add_flag("--grad", options->gradients,
                    "Derivatives and the backward too, also where the spec has no `grad` clause");
  command->add_flag(
      "--why-not", options->how.why_not,
      "If no engine takes the spec, show each reason and the rest of the explanation");
  add_ranks(*command, options->ranks);
  add_in(*command, options->ranks.inputs);
  command->add_flag("--simulate", options->ranks.simulates,
                    "With --ranks: also run all ranks on the host, and compare them with the "
                    "reference; for small sizes");
  command->add_flag("--yes", options->yes, "Simulate even if it takes more than an hour");
  add_strategy(*command, options->how.lowering, options->how.rewrites);
  add_deny(*command);
  add_build_limits(*command, options->how.limits);
  add_cudnn(*command, options->how.cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
