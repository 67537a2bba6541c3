// The mask of a spec as a view of the page: its picture, and what the scripts say of each score.
#pragma once

#include "compiler/pictures/picture.h"
#include "compiler/reference/bindings.h"
#include "tools/explanation.h"
#include "tools/report.h"
#include "tools/written.h"

namespace attn::tools::page {

// A picture small enough for a page: of scores if there are few and their SVG is short, else of
// blocks. Errors: those of pictures::picture_of.
Result<pictures::Picture> picture_for_page(const ir::Attention& attention,
                                           const reference::Bindings& values);

// "picture": SVG for a page, whose colours are those of colours_text. "conditions": [{"text",
// "line", "clauses"}], of all that hide scores. "data": for the scripts; tests/cli/report_test.py
// says what is in it.
Json mask_view(const ir::Attention& attention, const reference::Bindings& values,
               const pictures::Picture& picture, const std::vector<ExplainedClause>& clauses,
               const WrittenConditions& written);

// CSS: the colours of pictures in light and dark.
std::string colours_text();

// The share of the scores that is visible, of the batches and heads that are drawn.
masks_of_values::Share share_of(const pictures::Picture& picture);

}  // namespace attn::tools::page
