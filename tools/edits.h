// Options that replace clauses of a spec, as if its text said so: --dtype, --layout, --outputs,
// --deterministic, --lengths, --gradients.
#pragma once

#include <map>
#include <string>

#include "compiler/support/source.h"
#include "runtime/base/status.h"
#include "tools/command.h"

namespace attn::tools {

// What stands between the keyword of a clause and its `;`, by the keyword.
using Edits = std::map<std::string, std::string>;

void add_edits(CLI::App& command, Edits& edits);

// The source with these clauses in place of its own of the same keywords; of `lengths`, sides that
// it has keep their defaults. The lines of a text in the DSL stay where they are. A text with
// syntax errors is returned as it is. Errors: invalid_argument for what is not such a clause.
Result<support::Source> edited(support::Source source, const Edits& edits);

// The error for edits, of which there are some, of a plan file, which has the spec's own clauses.
Error refused_of_plan(const Edits& edits);

}  // namespace attn::tools
