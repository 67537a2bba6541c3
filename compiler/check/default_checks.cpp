#include "compiler/check/default_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/check/static_checks.h"
#include "compiler/reference/defaults.h"
#include "compiler/support/text.h"

namespace attn::check {
namespace {

using diag::Code;
using support::quoted;

constexpr std::size_t kMostEvaluations = std::size_t{1} << 22;  // of nodes, for one default

// Names of tensors, each with its default as written.
std::vector<std::pair<std::string_view, const ast::Expr*>> defaults_of(const ast::Spec& spec) {
  std::vector<std::pair<std::string_view, const ast::Expr*>> list;
  for (const ast::Clause& clause : spec.clauses) {
    if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      if (tensor->fallback) list.emplace_back(tensor->name.text, &*tensor->fallback);
    } else if (const auto* lengths = std::get_if<ast::LengthsClause>(&clause.body)) {
      for (const ast::LengthsEntry& entry : lengths->entries) {
        const std::string_view name = entry.side.text == "q" ? ir::kLengthsQ : ir::kLengthsKv;
        if (entry.fallback) list.emplace_back(name, &*entry.fallback);
      }
    }
  }
  return list;
}

// The expression of an element; of a list, its own.
support::Span span_of(const ast::Expr& written, const std::vector<std::int64_t>& dims,
                      std::size_t element) {
  auto size = static_cast<std::size_t>(io::element_count(dims));
  const ast::Expr* expr = &written;
  for (std::size_t axis = 0; axis < dims.size() && expr->kind == ast::ExprKind::list; ++axis) {
    size /= static_cast<std::size_t>(dims[axis]);
    expr = &expr->operands[element / size];
    element %= size;
  }
  return expr->span;
}

class DefaultChecker {
 public:
  DefaultChecker(const ir::Attention& attention, diag::Sink& sink)
      : attention_(attention), sink_(sink) {}

  void check(const ir::CapturedTensor& tensor, const ast::Expr& written) {
    const ir::ExprId roots[] = {*tensor.fallback};
    const std::size_t nodes = ir::reachable(attention_.dag, roots).size();
    const std::size_t most = std::max<std::size_t>(kMostEvaluations / nodes, 1);
    const auto evaluated = reference::evaluate_default(attention_, tensor, most);
    if (!evaluated.ok()) return;  // a dimension is open
    const io::HostTensor& values = evaluated->values;
    sink_.add_work(values.values.size() * nodes / kEvaluationsOfWork);
    if (evaluated->bad) {
      report_element(tensor, span_of(written, values.dims, values.values.size()), *evaluated);
    } else if (const auto broken = reference::broken_fact(attention_, tensor, values)) {
      sink_
          .report(Code::bad_value, span_of(written, values.dims, broken->element),
                  fmt::format("{} {}", quoted(tensor.name), broken->what))
          .help = broken->help;
    }
  }

 private:
  void report_element(const ir::CapturedTensor& tensor, support::Span span,
                      const reference::EvaluatedDefault& evaluated) {
    const std::string element =
        fmt::format("element {} of {}", evaluated.values.values.size(), quoted(tensor.name));
    if (!evaluated.bad->value) {
      sink_
          .report(Code::bad_value, span,
                  fmt::format("{} has no value: it divides by 0, or shifts by less than 0 or more "
                              "than 31",
                              element))
          .help = "guard it with `where`";
      return;
    }
    sink_
        .report(Code::bad_value, span,
                fmt::format("{} is {}, which {} cannot hold", element, *evaluated.bad->value,
                            attn::to_string(tensor.dtype)))
        .help = "`i32` holds any integer of the language";
  }

  const ir::Attention& attention_;
  diag::Sink& sink_;
};

}  // namespace

void check_defaults(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink) {
  DefaultChecker checker(attention, sink);
  for (const auto& [name, written] : defaults_of(spec)) {
    const ir::CapturedTensor* tensor = attention.find_tensor(name);
    if (tensor == nullptr || !tensor->fallback || spec.replaced.contains(name)) continue;
    checker.check(*tensor, *written);
  }
}

}  // namespace attn::check
