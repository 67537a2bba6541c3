// `attnc report`: what explain and draw say, as one page of HTML. (report.h reports errors.)
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "compiler/ir/bound.h"
#include "runtime/io/file.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/explaining.h"
#include "tools/inputs.h"
#include "tools/page/mask_view.h"
#include "tools/page/page.h"
#include "tools/page/view.h"
#include "tools/report.h"
#include "tools/subject.h"

namespace attn::tools {
namespace report_command {
namespace {

struct Options {
  std::string path;
  std::string output;
  std::string direction;  // empty: both if the spec has a `grad` clause, else fwd
  sema::Bindings bindings;
  InputTexts inputs;
  ExplainOptions how;
  Format format = Format::text;
};

Error wrong(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_options(const Options& options) {
  if (!options.output.ends_with(".html")) {
    return wrong(fmt::format("-o {}: the name does not end in .html", options.output));
  }
  ATTN_RETURN_IF_ERROR(check_is_not_input(options.output, options.path));
  if (!is_plan(options.path)) return {};
  if (!options.how.target.empty()) {
    return wrong("--target has no meaning for a plan: it has its own");
  }
  return {};
}

// Values of --in that do not fit are an error; without a picture for another reason there is a page
// that says why.
Result<Result<Drawn>> drawn_of(const Options& options, const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(ir::check_bound(attention));
  ATTN_ASSIGN(Inputs inputs,
              make_inputs(attention, options.inputs, Missing::lifelike, Needs::masks));
  return draw_inputs(attention, std::move(inputs), page::picture_for_page);
}

// Leaves what --direction asks for. Errors: invalid_argument, if a plan file does not have it.
Status select_direction(const std::string& direction, Explanation& explanation) {
  const bool lacks = (direction != "bwd" && !direction.empty() && !explanation.forward) ||
                     (direction != "fwd" && !direction.empty() && !explanation.backward);
  if (lacks) return wrong(fmt::format("--direction {}: the plan file does not have it", direction));
  if (direction == "fwd") {
    explanation.backward.reset();
    explanation.derivatives.reset();
  }
  if (direction == "bwd") explanation.forward.reset();
  return {};
}

Result<Explanation> explanation_of(const Options& options, const Subject& subject) {
  ExplainOptions how = options.how;
  how.why_not = true;
  if (!options.direction.empty()) how.gradients = options.direction != "fwd";
  Explanation explanation;
  if (subject.file) {
    explanation =
        explain_plans(subject.spec, *subject.file, how.gradients.value_or(false), how.limits);
  } else {
    ATTN_ASSIGN(explanation, explain_attention(how, subject.spec));
  }
  ATTN_RETURN_IF_ERROR(select_direction(options.direction, explanation));
  return explanation;
}

// The refusal of the forward, else that of the backward.
std::optional<Error> refusal_of(const Explanation& explanation) {
  const auto& forward = explanation.forward;
  const auto& backward = explanation.backward;
  if (forward && forward->refusal) return forward->refusal;
  if (!backward || !backward->refusal) return std::nullopt;
  Error refusal = *backward->refusal;
  refusal.message = fmt::format("backward: {}", refusal.message);
  return refusal;
}

Json to_json(const Options& options, const std::string& text, const std::optional<Error>& refusal,
             const support::Source& source) {
  Json json = {{"report", options.output}, {"bytes", text.size()}};
  if (refusal) json["error"] = error_json(*refusal, &source);
  return json;
}

// The exit code: a page of what no engine takes says why, but it is not done.
Result<int> write_report(const Options& options, const Subject& subject) {
  const Spec& spec = subject.spec;
  ATTN_ASSIGN(auto drawn, drawn_of(options, spec.attention));
  ATTN_ASSIGN(const Explanation explanation, explanation_of(options, subject));
  diag::Sink further(*spec.source);
  if (!subject.file) warn_of_memory(spec, explanation, further);
  print_diagnostics(diag::to_text(further, error_paint()));
  if (report_denied(further, options.format)) return kSpecHasErrors;
  const std::string text = page::page_of(
      page::view_of({spec, explanation, further, std::move(drawn), subject.file.has_value()}));
  ATTN_RETURN_IF_ERROR(io::write_file(options.output, std::as_bytes(std::span(text))));
  const std::optional<Error> refusal = refusal_of(explanation);
  if (options.format == Format::json) {
    print_json(to_json(options, text, refusal, *spec.source));
  }
  if (!refusal) return kOk;
  tell(error_text(*refusal, spec.source.get(), error_paint()));
  return kUnsupported;
}

int run(const Options& options) {
  if (const Status status = check_options(options); !status.ok()) {
    return report(status.error(), options.format);
  }
  const SubjectOutcome outcome =
      read_subject(options.path, options.bindings, options.format, options.inputs);
  if (!outcome.subject) return outcome.exit_code;
  const Result<int> code = write_report(options, *outcome.subject);
  if (code.ok()) return *code;
  return report(code.error(), options.format, outcome.subject->spec.source.get());
}

}  // namespace
}  // namespace report_command

void add_report(CLI::App& app, Action& action) {
  using namespace report_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "report", "Write one HTML page: the spec, its mask, strategies, limits, graphs, kernels");
  add_subject(*command, options->path);
  command->add_option("-o,--output", options->output, "Page to write; it needs no other file")
      ->type_name("FILE.html")
      ->required();
  add_target_option(*command, options->how.target);
  add_bind(*command, options->bindings);
  add_in(*command, options->inputs);
  add_direction(*command, options->direction,
                "What to show (default: both if the spec has a `grad` clause, else fwd)");
  add_strategy(*command, options->how.lowering, options->how.rewrites);
  add_deny(*command);
  add_build_limits(*command, options->how.limits);
  add_cudnn(*command, options->how.cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
