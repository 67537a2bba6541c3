#include "compiler/sema/values.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/sema/constants.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using support::quoted;

class ValuesOfKeys {
 public:
  ValuesOfKeys(const ast::Spec& spec, const ast::Clause& clause, ir::Attention& attention,
               Environment& environment, diag::Sink& sink)
      : spec_(spec),
        clause_(std::get<ast::ValuesClause>(clause.body)),
        keyword_(clause.keyword.span),
        attention_(attention),
        environment_(environment),
        sink_(sink) {}

  void set() {
    const bool is_of_keys = check_tensor();
    check_columns();
    check_clauses();
    if (!is_of_keys || sink_.has_errors()) return;
    const ir::Layout& layout = attention_.layouts.find("k")->second;
    if (!fits(layout)) return;
    attention_.values_of_keys = true;
    const support::Place at = sink_.source().place(keyword_.begin);
    attention_.values_pos = {at.line, at.column};
    attention_.layouts.find("v")->second = layout;
  }

 private:
  bool check_tensor() {
    if (clause_.tensor.text == "k") return true;
    auto& diagnostic = sink_.report(Code::bad_choice, clause_.tensor.span,
                                    fmt::format("v is no part of {}", quoted(clause_.tensor.text)));
    diagnostic.help = "v may be the first columns of `k`";
    diagnostic.add_replacement(clause_.tensor.span, "k");
    return false;
  }

  std::optional<std::int64_t> column(const ast::Expr& expr) {
    const auto lookup = [&](const std::string& name, support::Span span) {
      return environment_.lookup(name, span, sink_);
    };
    const Known known = evaluate(expr, lookup, sink_);
    if (known.state == Known::State::value && !known.integer()) {
      sink_.report(Code::bad_value, expr.span, "a column is an integer").help = "divide with `//`";
    }
    return known.state == Known::State::value ? known.integer() : std::nullopt;
  }

  void check_columns() {
    const auto first = column(clause_.first), end = column(clause_.end);
    if (first && *first != 0) {
      sink_
          .report(Code::bad_value, clause_.first.span,
                  fmt::format("v would begin at column {} of k", *first))
          .help =
          "v is the first columns of k: put those first in q and k, which changes no score, and "
          "write `values k[0..N];` with their number";
    }
    if (!end) return;
    const auto depth = attention_.dims.get(Dim::Dqk), width = attention_.dims.get(Dim::Dv);
    if (depth && (*end > *depth || *end < 1)) {
      sink_
          .report(Code::bad_size, clause_.end.span,
                  fmt::format("v would have {} of the {} columns of k", *end, *depth))
          .help = fmt::format("the end is a column from 1 to {}", *depth);
    } else if (width && *width != *end) {
      sink_
          .report(Code::bad_size, clause_.end.span,
                  fmt::format("v has {} columns here, and Dv is {}", *end, *width))
          .help =
          "leave Dv out of `dims`, and give k's columns as `Dqk`: Dv follows from this clause";
    }
  }

  struct Excluded {
    std::string_view word, what, help;
  };

  // Clauses that such an attention does not have.
  void check_clauses() {
    static constexpr Excluded kExcluded[] = {
        {"grad", "an attention whose values are a part of k has no gradients",
         "train with k and v of their own: leave out `values`, and give v as an input"},
        {"branch", "a spec with branches has values of its own",
         "leave out `values`, and give v as an input"},
        {"quantize", "8-bit attention has values of their own, with their scale",
         "use `dtype bf16;` without `quantize`, or leave out `values`"}};
    for (const ast::Clause& clause : spec_.clauses) {
      for (const Excluded& each : kExcluded) {
        if (clause.keyword.text == each.word) refuse(clause.keyword.span, each.what, each.help);
      }
      const auto* prologue = std::get_if<ast::PrologueClause>(&clause.body);
      if (prologue != nullptr && prologue->tensor.text == "k")
        refuse(prologue->tensor.span, "v is a part of k, and a prologue would change both",
               "apply it before k is stored, or leave out `values`");
      const auto* layout = std::get_if<ast::LayoutClause>(&clause.body);
      if (layout != nullptr) check_layout(*layout);
    }
  }

  void check_layout(const ast::LayoutClause& layout) {
    for (const ast::LayoutEntry& entry : layout.entries) {
      if (entry.tensor && entry.tensor->text == "v")
        refuse(entry.tensor->span, "v is a part of k, and where k is",
               "leave out the layout of `v`");
    }
  }

  void refuse(support::Span span, std::string_view what, std::string_view help) {
    auto& diagnostic = sink_.report(Code::not_available_here, span, std::string(what));
    diagnostic.help = ast::hint_for(sink_.source(), std::string(help));
    diagnostic.labels.push_back({keyword_, "v is a part of k here"});
  }

  bool fits(const ir::Layout& layout) {
    const bool is_packed =
        layout.kind == ir::LayoutKind::packed_qkv || layout.kind == ir::LayoutKind::packed_kv;
    if (!is_packed && layout.tables == 1) return true;
    refuse(clause_.tensor.span,
           is_packed ? "k and v are parts of one tensor, beside each other"
                     : "v is a part of k, and has no page table of its own",
           is_packed ? "use another layout, such as `bshd`" : "leave out `tables = 2`");
    return false;
  }

  const ast::Spec& spec_;
  const ast::ValuesClause& clause_;
  support::Span keyword_;
  ir::Attention& attention_;
  Environment& environment_;
  diag::Sink& sink_;
};

}  // namespace

const ast::Clause* find_values(const ast::Spec& spec) {
  const auto found = std::ranges::find_if(spec.clauses, [](const ast::Clause& clause) {
    return std::holds_alternative<ast::ValuesClause>(clause.body);
  });
  return found == spec.clauses.end() ? nullptr : &*found;
}

void set_values(const ast::Spec& spec, ir::Attention& attention, Environment& environment,
                diag::Sink& sink) {
  const ast::Clause* clause = find_values(spec);
  if (clause != nullptr) ValuesOfKeys(spec, *clause, attention, environment, sink).set();
}

}  // namespace attn::sema
