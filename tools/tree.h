// Reads and prints specs as syntax trees, without semantic analysis; for `fmt` and `convert`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/support/source.h"

namespace attn::tools {

// Parses a source. Returns nothing, with diagnostics on standard error, if it has syntax errors or
// unknown clauses.
std::optional<ast::Spec> read_tree(const support::Source& source);

enum class Form : std::uint8_t { dsl, json };

// Prints the tree, and checks that the text parses to the same tree. Returns nothing, with
// diagnostics on standard error, if the form cannot express it: JSON allows deeper nesting than
// text, and its comments must be UTF-8.
std::optional<std::string> print_tree(const ast::Spec& spec, const support::Source& source,
                                      Form form);

// Replaces the file atomically: a reader sees the old text or the new text. Errors: io.
Status replace_file(const std::string& path, const std::string& text);

}  // namespace attn::tools
