#include <algorithm>

#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/driver/driver.h"
#include "compiler/sema/library.h"

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

}  // namespace attn::driver
