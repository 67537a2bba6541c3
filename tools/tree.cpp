#include "tools/tree.h"

#include "compiler/ast/comments.h"
#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/sema/library.h"
#include "compiler/sema/other_clauses.h"
#include "runtime/base/check.h"
#include "tools/console.h"
#include "tools/report.h"

namespace attn::tools {
namespace {

// Prints the diagnostics.
Error refused(const diag::Sink& sink) {
  print_diagnostics(diag::to_text(sink, error_paint()));
  return {ErrorCode::invalid_spec, "the spec has errors", {}, diag::to_json(sink)};
}

Status check_utf8(const support::Source& source) {
  const auto byte = ast::first_not_utf8(source.text());
  if (!byte) return {};
  diag::Sink sink(source);
  sink.report(diag::Code::unexpected_character, *byte,
              "this byte is not UTF-8, which JSON cannot represent");
  return refused(sink);
}

}  // namespace

Result<ast::Spec> read_tree(const support::Source& source) {
  diag::Sink sink(source);
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  const bool whole = spec && sema::has_only_known_clauses(*spec, sink);
  if (!whole) return refused(sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  return std::move(*spec);
}

Result<std::string> print_tree(const ast::Spec& spec, const support::Source& source, Form form) {
  const bool json = form == Form::json;
  if (json) ATTN_RETURN_IF_ERROR(check_utf8(source));
  const support::Source printed(json ? "<result>.json" : "<result>",
                                json ? ast::to_json(spec) : ast::to_dsl(spec));
  diag::Sink sink(printed);
  const std::optional<ast::Spec> again = ast::parse(printed, sink);
  if (!again) return refused(sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  ATTN_CHECK(ast::to_dsl(*again) == ast::to_dsl(spec),
             "the printed text parses to a different tree");
  return std::string(printed.text());
}

Result<ast::Spec> with_imports(ast::Spec spec, const support::Source& source) {
  diag::Sink sink(source);
  const sema::Library library = sema::load_imports(spec, sink);
  if (sink.has_errors()) return refused(sink);
  return sema::without_imports(std::move(spec), library);
}

}  // namespace attn::tools
