#include "compiler/sema/other_clauses.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/syntax.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {

using diag::Code;
using support::quoted;

void report_other_clause(const ast::Clause& clause, diag::Sink& sink) {
  const std::string& word = clause.keyword.text;
  if (word == "import") {
    sink.report(Code::unknown_clause, clause.keyword.span, "an import goes above the attention")
        .help = "move it to the top of the file";
    return;
  }
  if (const std::string_view help = ast::foreign_help(word); !help.empty()) {
    sink.report(Code::unknown_clause, clause.keyword.span,
                fmt::format("unknown clause {}", quoted(word)))
        .help = help;
    return;
  }
  auto& diagnostic = sink.report(Code::unknown_clause, clause.keyword.span,
                                 fmt::format("unknown clause {}", quoted(word)));
  diagnostic.help = clause_elsewhere(word);
  if (!diagnostic.help.empty()) return;
  did_you_mean(support::nearest(word, built_clauses())).put(diagnostic, clause.keyword.span);
  if (diagnostic.help.empty()) diagnostic.help = "expected " + support::one_of(built_clauses());
}

bool has_only_known_clauses(const ast::Spec& spec, diag::Sink& sink) {
  bool known = true;
  for (const auto* clauses : {&spec.preamble, &spec.clauses}) {
    for (const ast::Clause& clause : *clauses) {
      if (!std::holds_alternative<ast::OtherClause>(clause.body)) continue;
      report_other_clause(clause, sink);
      known = false;
    }
  }
  return known;
}

}  // namespace attn::sema
