// Reading specs and plans that the command line names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/support/source.h"
#include "runtime/plan/plan.h"
#include "tools/command.h"
#include "tools/report.h"

namespace attn::tools {

// A spec that has no errors, with the source its positions refer to.
struct Spec {
  std::shared_ptr<const support::Source> source;
  sema::Bindings bindings;
  ir::Attention attention;
};

// What reading a spec came to: one of them, or the error and exit code of what was reported.
struct SpecOutcome {
  std::optional<Spec> spec;
  int exit_code = 0;
  // When there is no spec. Of a spec with errors (invalid_spec) the payload has the diagnostics.
  std::optional<Error> error;
};

// Reads `path` ("-" is standard input) and runs the front end. Diagnostics, warnings too, go to
// standard error; with json errors also to standard output.
SpecOutcome read_spec(const std::string& path, const sema::Bindings& bindings, Format format);
SpecOutcome analyze_spec(std::shared_ptr<const support::Source> source,
                         const sema::Bindings& bindings, Format format);

// The same for every plan that the spec asks for, up to the first with errors: a warning of several
// is said once. Nothing when there are errors, or warnings that are denied.
std::vector<Spec> analyze_all_sizes(const std::shared_ptr<const support::Source>& source,
                                    const sema::Bindings& bindings, Format format);

// --deny warnings, of a command that reads specs: those below then take warnings for errors. It is
// set once for the whole program, while the command line is read.
void add_deny(CLI::App& command);
bool denies_warnings();
// What is said behind the warnings.
inline constexpr const char* kDenied = "error: warnings are denied (--deny warnings)\n";

// Warnings of a spec that are found after it was read: with --deny warnings they are an error,
// which is reported here. The diagnostics themselves were printed before.
std::optional<Error> report_denied(const diag::Sink& sink, Format format);

// Whether the path is to be read as a plan file: it begins like one, or its name ends in .attnplan
// (what is wrong with it is said then). Standard input ("-") never is.
bool is_plan(const std::string& path);

// The spec that a plan was made from, to be explained or evaluated again.
SpecOutcome spec_of_plan(const std::string& path, const plan::Plan& plan, Format format);
std::shared_ptr<const support::Source> source_of_plan(const std::string& path,
                                                      const plan::Plan& plan);

// The specs in SPEC..., where a folder stands for those in it as with --all, or in --all DIR (not
// its folders), sorted by name. Errors: io, invalid_argument when both or neither are given or the
// folder has none.
Result<std::vector<std::string>> spec_paths(const std::vector<std::string>& specs,
                                            const std::string& folder);

}  // namespace attn::tools
