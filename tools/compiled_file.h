// The plan file that `attnc compile` writes, and what it prints of it.
#pragma once

#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "tools/command.h"
#include "tools/report.h"

namespace attn::tools {

// A variant of a spec that failed to compile.
struct Failure {
  sema::Bindings bindings;
  Error error;
};

Json failures_json(const std::vector<Failure>& failures);

// The largest exit code of the failures.
int worst_of(const std::vector<Failure>& failures);

// Prints a note if cuDNN may refuse to load the plan.
void tell_doubt(const plan::Plan& plan, const std::string& output);

// Writes the plans, one or more, to the file `output` and prints what they are. Returns worst_of
// the failures, or the exit code of an error that it has reported.
int write_compiled(const std::vector<driver::Compiled>& plans, const std::vector<Failure>& failures,
                   const std::string& output, Format format);

}  // namespace attn::tools
