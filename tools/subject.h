// SPEC|PLAN: what a command runs.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/bundle.h"
#include "tools/plans.h"
#include "tools/spec.h"

namespace attn::tools {

// A spec, and when it came as a plan file also the plans of the shape that --bind picked.
struct Subject {
  Spec spec;
  std::optional<plan::Bundle> file;
};

// One of them, or the error and exit code of what was reported.
struct SubjectOutcome {
  std::optional<Subject> subject;
  int exit_code = 0;
  std::optional<Error> error{};
};

SubjectOutcome read_subject(const std::string& path, const sema::Bindings& bindings, Format format);

// The plans of a file, with `gradients` both directions. Errors: those of plan::plan_of.
Result<Plans> plans_of(const plan::Bundle& file, bool gradients);

}  // namespace attn::tools
