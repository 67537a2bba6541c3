// Reads the specs and plans named on the command line.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/support/source.h"
#include "runtime/plan/plan.h"
#include "tools/command.h"
#include "tools/edits.h"
#include "tools/report.h"

namespace attn::masks {
class MaskAnalyses;
}

namespace attn::tools {

// A spec without errors, and the source that its positions refer to.
struct Spec {
  std::shared_ptr<const support::Source> source;
  sema::Bindings bindings;
  ir::Attention attention;
  // Analyses of masks, made by the front end and kept for the compiler.
  std::shared_ptr<masks::MaskAnalyses> analyses{};
  std::shared_ptr<const diag::Sink> warnings{};  // of read_spec and spec_of_plan
};

// A spec, or the error that was reported and its exit code.
struct SpecOutcome {
  std::optional<Spec> spec;
  int exit_code = 0;
  // Set if there is no spec. For a spec with errors (invalid_spec) the payload has the diagnostics.
  std::optional<Error> error;
};

// Whether a file of this name is a spec: it ends in .attn or .attn.json.
bool is_spec_name(std::string_view name);

// Errors: invalid_argument, with these notes, if -o names the file that is read.
Status check_is_not_input(const std::string& output, const std::string& input,
                          std::vector<std::string> notes = {});

// Source::read of a file, of a standard spec by its name, or of standard input ("-"); the error of
// a file that does not exist names one that may be meant. Errors also: invalid_argument for a plan
// file; those of edited().
Result<support::Source> read_source(const std::string& path, const Edits& edits = {});
// The same of a file that will be replaced, which names nothing else.
Result<support::Source> read_own_source(const std::string& path);

// Reads `path` ("-" is standard input) and runs the front end. Prints errors and warnings to
// standard error, and unless the format is text errors also to standard output. Defaults of tensors
// that --in gives a value (`inputs`) may be wrong.
SpecOutcome read_spec(const std::string& path, const sema::Bindings& bindings, Format format,
                      const std::map<std::string, std::string>& inputs = {},
                      const Edits& edits = {});
SpecOutcome analyze_spec(std::shared_ptr<const support::Source> source,
                         const sema::Bindings& bindings, Format format,
                         const std::map<std::string, std::string>& inputs = {});

// The same for every plan that the spec asks for, up to the first with errors. A warning of several
// plans is printed once. Empty if there are errors, or warnings with --deny warnings.
std::vector<Spec> analyze_all_sizes(const std::shared_ptr<const support::Source>& source,
                                    const sema::Bindings& bindings, Format format);

// --deny warnings, for commands that read specs. The functions of this header then treat warnings
// as errors. Global state, set once while the command line is parsed.
void add_deny(CLI::App& command);
bool denies_warnings();
// Says so, after the warnings.
void tell_denied();

// Reports an error if --deny warnings is set and `sink` has warnings. For warnings found after the
// spec was read; the caller has already printed the diagnostics.
std::optional<Error> report_denied(const diag::Sink& sink, Format format);

// Whether to read the path as a plan file: it begins like one, or its name ends in .attnplan (so
// that errors are those of a plan file). False for standard input ("-").
bool is_plan(const std::string& path);

// The spec that a plan was compiled from.
SpecOutcome spec_of_plan(const std::string& path, const plan::Plan& plan, Format format,
                         const std::map<std::string, std::string>& inputs = {});
std::shared_ptr<const support::Source> source_of_plan(const std::string& path,
                                                      const plan::Plan& plan);

// The specs named by SPEC..., where a folder means all specs in it, or by --all DIR, sorted by
// name. Folders are not searched recursively. Errors: io, also if a folder has no specs;
// invalid_argument if both or neither are given.
Result<std::vector<std::string>> spec_paths(const std::vector<std::string>& specs,
                                            const std::string& folder);

// The same for commands without --all: a folder means all specs in it and in the folders below it,
// except those whose names begin with a dot.
Result<std::vector<std::string>> specs_below(const std::vector<std::string>& paths);

}  // namespace attn::tools
