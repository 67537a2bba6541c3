#include "tools/fixes.h"

#include <algorithm>
#include <optional>

namespace attn::tools {
namespace {

using support::Span;

// The edits in the sink's source; nothing if one is in another file.
std::optional<std::vector<diag::Edit>> own_edits(const diag::Sink& sink, const diag::Fix& fix) {
  std::vector<diag::Edit> edits;
  for (const diag::Edit& edit : fix.edits) {
    const diag::Location at = sink.locate(edit.span);
    if (at.source != &sink.source()) return std::nullopt;
    edits.push_back({at.span, edit.text});
  }
  return edits;
}

// Whether one of them touches another: the order of two at one place is not known.
bool touch(const std::vector<diag::Edit>& edits, const std::vector<diag::Edit>& others) {
  return std::ranges::any_of(edits, [&](const diag::Edit& edit) {
    return std::ranges::any_of(others, [&](const diag::Edit& other) {
      return edit.span.begin <= other.span.end && other.span.begin <= edit.span.end;
    });
  });
}

}  // namespace

Fixed apply_fixes(const diag::Sink& sink) {
  Fixed fixed{std::string(sink.source().text()), {}};
  std::vector<diag::Edit> all;
  for (const diag::Diagnostic& diagnostic : sink.sorted()) {
    if (diagnostic.fixes.size() != 1) continue;
    const diag::Fix& fix = diagnostic.fixes.front();
    const auto edits = own_edits(sink, fix);
    if (!edits || edits->empty() || touch(*edits, all)) continue;
    all.insert(all.end(), edits->begin(), edits->end());
    const diag::Location at = sink.locate(diagnostic.span);
    fixed.applied.push_back({fix.title, at.source->place(at.span.begin)});
  }
  std::ranges::sort(all, std::greater(), [](const diag::Edit& edit) { return edit.span.begin; });
  for (const diag::Edit& edit : all) {
    fixed.text.replace(edit.span.begin, edit.span.end - edit.span.begin, edit.text);
  }
  return fixed;
}

}  // namespace attn::tools
