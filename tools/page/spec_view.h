// The text of a spec as a view of the page.
#pragma once

#include "compiler/diag/diagnostics.h"
#include "tools/explanation.h"
#include "tools/report.h"

namespace attn::tools::page {

// [{"number", "words": [{"kind", "text"}], "clauses": "0 2", "marks": [{"severity", "text"}]}]: a
// line each. "clauses" are indexes of the explanation's clauses that the line is a part of; marks
// are the diagnostics, as lines below it: carets and what is wrong, then the help.
Json lines_view(const support::Source& source, const std::vector<const diag::Sink*>& warnings,
                const std::vector<ExplainedClause>& clauses);

// What is said of no line of the source: of another file. [{"severity", "text"}]
Json other_marks_view(const std::vector<const diag::Sink*>& warnings);

}  // namespace attn::tools::page
