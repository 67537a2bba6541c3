// Reading a spec for what was written, not for what it means: `fmt` and `convert`.
#pragma once

#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/support/source.h"

namespace attn::tools {

// The tree of a source that can be printed again: without syntax errors, and without clauses that
// are not known. Otherwise nothing, and diagnostics on standard error.
std::optional<ast::Spec> read_tree(const support::Source& source);

// Replaces the file at once: a reader sees the old text or the new one. Errors: io.
Status replace_file(const std::string& path, const std::string& text);

}  // namespace attn::tools
