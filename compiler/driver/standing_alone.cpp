#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/driver/driver.h"
#include "compiler/sema/library.h"
#include "compiler/support/text.h"

namespace attn::driver {

std::string standing_alone(const support::Source& source) {
  diag::Sink sink(source);
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  const bool imports = spec && std::ranges::any_of(spec->preamble, [](const ast::Clause& item) {
                         return std::holds_alternative<ast::ImportClause>(item.body);
                       });
  if (!imports) return std::string(source.text());
  const sema::Library library = sema::load_imports(*spec, sink);
  const ast::Spec whole = sema::without_imports(std::move(*spec), library);
  return source.is_json() ? ast::to_json(whole) : ast::to_dsl(whole);
}

Status check_stands_alone(const support::Source& source) {
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return {};
  for (const ast::Clause& item : spec->preamble) {
    const auto* import = std::get_if<ast::ImportClause>(&item.body);
    if (import == nullptr) continue;
    return Error{
        ErrorCode::plan_damaged,
        fmt::format("the spec in the plan file imports {}, but plan files must not have imports",
                    support::quoted(import->path.text)),
        {"attnc inlines imports when it writes a plan: another program wrote this file"}};
  }
  return {};
}

}  // namespace attn::driver
