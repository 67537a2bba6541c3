// The SPEC|PLAN argument of a command.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/plan/bundle.h"
#include "tools/plans.h"
#include "tools/spec.h"

namespace attn::tools {

// A spec, and, if read from a plan file, the plans of the shape selected by --bind.
struct Subject {
  Spec spec;
  std::optional<plan::Bundle> file;
};

// A subject, or the error that was reported and its exit code.
struct SubjectOutcome {
  std::optional<Subject> subject;
  int exit_code = 0;
  std::optional<Error> error{};
};

// Defaults of tensors that --in gives a value (`inputs`) may be wrong. Edits are of a spec alone:
// with a plan they are an error.
SubjectOutcome read_subject(const std::string& path, const sema::Bindings& bindings, Format format,
                            const std::map<std::string, std::string>& inputs = {},
                            const Edits& edits = {});

// The forward plan of a file, and with `gradients` also the backward. Errors: those of
// plan::plan_of.
Result<Plans> plans_of(const plan::Bundle& file, bool gradients);

}  // namespace attn::tools
