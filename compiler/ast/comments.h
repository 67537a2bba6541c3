// Comments: from a DSL text to the nodes of its tree, and the one form they are kept in.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"

namespace attn::ast {

// Whether `text` is one comment: `#` and the rest of a line.
bool is_comment(std::string_view text);

// The first byte that is not UTF-8. Comments may have such, but JSON cannot hold them.
std::optional<Span> first_not_utf8(std::string_view text);

// Gives every comment of the text to the node above or beside which it stands; those inside a
// clause go above it. `comments` are their places in text order, `end_of_header` is where the body
// begins. A comment that is a string in quotes (Python's docstring) becomes lines with `#`.
void attach_comments(const support::Source& source, const std::vector<Span>& comments,
                     std::uint32_t end_of_header, Spec& spec);

// No space at the end of a comment, one blank line where there are several, none at the top of the
// file or the body and none at the end of either.
void normalize_comments(Spec& spec);

}  // namespace attn::ast
