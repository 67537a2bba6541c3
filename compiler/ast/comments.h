// Attaches the comments of a DSL text to the nodes of its tree, and normalizes them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"

namespace attn::ast {

// Whether `text` is a single comment: `#` and the rest of a line.
bool is_comment(std::string_view text);

// The first byte that is not UTF-8, if any. DSL comments may contain such bytes; JSON cannot.
std::optional<Span> first_not_utf8(std::string_view text);

// Attaches every comment to the node below it, or to the node that ends on its line. Comments
// inside a clause go above the clause. `comments` are their spans in text order; `end_of_header` is
// where the body begins. A docstring (a string in quotes) becomes `#` lines.
void attach_comments(const support::Source& source, const std::vector<Span>& comments,
                     std::uint32_t end_of_header, Spec& spec);

// Removes spaces at the end of comments, repeated blank lines, and blank lines at the beginning and
// end of the file and of the body.
void normalize_comments(Spec& spec);

}  // namespace attn::ast
