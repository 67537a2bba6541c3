// Reading a spec for what was written, not for what it means: `fmt` and `convert`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/support/source.h"

namespace attn::tools {

// The tree of a source that can be printed again: without syntax errors, and without clauses that
// are not known. Otherwise nothing, and diagnostics on standard error.
std::optional<ast::Spec> read_tree(const support::Source& source);

enum class Form : std::uint8_t { dsl, json };

// The source's tree as text, which has been read again and is the same tree. Nothing, and
// diagnostics on standard error, when that form cannot hold it: brackets may be nested deeper in
// JSON, and comments there are UTF-8.
std::optional<std::string> print_tree(const ast::Spec& spec, const support::Source& source,
                                      Form form);

// Replaces the file at once: a reader sees the old text or the new one. Errors: io.
Status replace_file(const std::string& path, const std::string& text);

}  // namespace attn::tools
