#include "compiler/ast/parse.h"
#include "compiler/driver/driver.h"
#include "compiler/driver/static_checks.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/without_keys.h"
#include "compiler/sema/library.h"
#include "runtime/base/check.h"

namespace attn::driver {
namespace {

// A value that does not verify is our bug, whatever the spec was.
void check_verified(const ir::Attention& attention) {
  const Status status = ir::verify(attention);
  ATTN_CHECK(status.ok(), status.error().message);
}

}  // namespace

std::optional<ir::Attention> front_end(const support::Source& source,
                                       const sema::Bindings& bindings, diag::Sink& sink) {
  const std::optional<ast::Spec> spec = ast::parse(source, sink);
  if (!spec || sink.has_errors()) return std::nullopt;
  sema::Spans spans;
  const std::optional<ir::Attention> written = sema::analyze(*spec, bindings, sink, &spans);
  if (!written || sink.has_errors()) return std::nullopt;
  check_verified(*written);
  ir::Attention attention = passes::simplify(passes::without_keys(*written));
  check_verified(attention);
  check_statically({*written, attention, spans, spec->name.span}, sink);
  if (sink.has_errors()) return std::nullopt;
  return attention;
}

std::vector<sema::Bindings> variants(const support::Source& source,
                                     const sema::Bindings& bindings) {
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return {bindings};
  return sema::variants(*spec, bindings);
}

std::optional<std::size_t> check_library(const support::Source& source, diag::Sink& sink) {
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec || !spec->is_library) return std::nullopt;
  const sema::Library library = sema::load_imports(*spec, sink);
  const std::size_t count = sema::check_library(*spec, library, sink);
  return sink.has_errors() ? std::nullopt : std::optional(count);
}

}  // namespace attn::driver
