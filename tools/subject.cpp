#include "tools/subject.h"

#include "tools/report.h"

namespace attn::tools {
namespace {

SubjectOutcome outcome_of(SpecOutcome outcome, std::optional<plan::Bundle> file) {
  if (!outcome.spec) return {std::nullopt, outcome.exit_code, std::move(outcome.error)};
  return {Subject{std::move(*outcome.spec), std::move(file)}, kOk};
}

Result<plan::Bundle> read_plan(const std::string& path, const sema::Bindings& bindings,
                               const Edits& edits) {
  if (edits.empty()) return read_shape(path, bindings);
  return refused_of_plan(edits);
}

}  // namespace

SubjectOutcome read_subject(const std::string& path, const sema::Bindings& bindings, Format format,
                            const std::map<std::string, std::string>& inputs, const Edits& edits) {
  if (!is_plan(path)) {
    return outcome_of(read_spec(path, bindings, format, inputs, edits), std::nullopt);
  }
  Result<plan::Bundle> file = read_plan(path, bindings, edits);
  if (!file.ok()) return {std::nullopt, report(file.error(), format), file.error()};
  SpecOutcome outcome = spec_of_plan(path, file->plans.front(), format, inputs);
  return outcome_of(std::move(outcome), std::move(*file));
}

Result<Plans> plans_of(const plan::Bundle& file, bool gradients) {
  Plans plans;
  ATTN_ASSIGN(plans.forward, plan::plan_of(file, plan::Direction::forward));
  if (gradients) {
    ATTN_ASSIGN(plans.backward, plan::plan_of(file, plan::Direction::backward));
  }
  return plans;
}

}  // namespace attn::tools
