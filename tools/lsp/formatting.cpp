#include <algorithm>

#include "compiler/sema/other_clauses.h"
#include "tools/lsp/features.h"
#include "tools/tree.h"

namespace attn::tools::lsp {
namespace {

// What differs, as one edit of whole lines.
Json edit_between(const Text& text, std::string_view after) {
  const std::string_view before = text.bytes();
  std::size_t begin = std::ranges::mismatch(before, after).in1 - before.begin();
  while (begin > 0 && before[begin - 1] != '\n') --begin;
  std::size_t same_end = 0;
  const std::size_t most = std::min(before.size(), after.size()) - begin;
  while (same_end < most &&
         before[before.size() - 1 - same_end] == after[after.size() - 1 - same_end]) {
    ++same_end;
  }
  const auto is_line_begin = [&](std::size_t at) { return at == 0 || before[at - 1] == '\n'; };
  while (same_end > 0 && !is_line_begin(before.size() - same_end)) --same_end;
  const Span replaced{static_cast<std::uint32_t>(begin),
                      static_cast<std::uint32_t>(before.size() - same_end)};
  return {{"range", to_json(text.range(replaced))},
          {"newText", after.substr(begin, after.size() - same_end - begin)}};
}

}  // namespace

Json formatting(const Request& request) {
  const Analysis& analysis = request.analysis;
  diag::Sink unheard(*analysis.source);
  if (!analysis.is_complete || !sema::has_only_known_clauses(*analysis.spec, unheard)) {
    return nullptr;
  }
  const auto printed = print_tree(*analysis.spec, *analysis.source,
                                  analysis.source->is_json() ? Form::json : Form::dsl);
  if (!printed) return nullptr;
  if (*printed == request.document.text.bytes()) return Json::array();
  return Json::array({edit_between(request.document.text, *printed)});
}

}  // namespace attn::tools::lsp
