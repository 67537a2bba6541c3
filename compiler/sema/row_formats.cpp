#include "compiler/sema/row_formats.h"

#include <fmt/format.h>

#include "compiler/ast/print.h"
#include "compiler/sema/values.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using support::quoted;

// The argument `rows` of a layout; null if there is none.
const ast::Expr* find_rows(const ast::Spec& spec) {
  for (const ast::Clause& clause : spec.clauses) {
    const auto* layout = std::get_if<ast::LayoutClause>(&clause.body);
    if (layout == nullptr) continue;
    for (const ast::LayoutEntry& entry : layout->entries) {
      for (const ast::LayoutArgument& argument : entry.arguments) {
        if (argument.name && argument.name->text == "rows") return &argument.value;
      }
    }
  }
  return nullptr;
}

// The layout whose rows have a format: that of k, or of v, where it is a mistake. Null: none has.
const ir::Layout* find_formatted(const ir::Attention& attention) {
  for (const char* name : {"k", "v"}) {
    const auto layout = attention.layouts.find(name);
    if (layout != attention.layouts.end() && layout->second.rows) return &layout->second;
  }
  return nullptr;
}

}  // namespace

void check_row_format(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink) {
  const ir::Layout* const layout = find_formatted(attention);
  const ast::Expr* rows = find_rows(spec);
  if (layout == nullptr || rows == nullptr) return;
  const RowFormatInfo& of = info(*layout->rows);
  const auto report = [&](Code code, const std::string& what, std::string help) {
    sink.report(code, rows->span, fmt::format("rows of {} {}", quoted(of.name), what)).help =
        ast::hint_for(sink.source(), std::move(help));
  };
  if (find_values(spec) == nullptr) {
    report(Code::bad_layout, "hold keys whose first columns are the values",
           fmt::format("write `values k[0..{}];`", of.narrow));
  }
  const auto depth = attention.dims.get(Dim::Dqk);
  if (depth && *depth != of.columns()) {
    report(Code::bad_size, fmt::format("have {} columns, and Dqk is {}", of.columns(), *depth),
           fmt::format("write `Dqk = {}` in `dims`", of.columns()));
  }
  if (attention.dtype != DType::bf16) {
    report(Code::bad_layout,
           fmt::format("have columns of bf16, and queries are {}", to_string(attention.dtype)),
           "write `dtype bf16;`");
  }
}

}  // namespace attn::sema
