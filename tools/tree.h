// Reads and prints specs as syntax trees, without semantic analysis; for `fmt` and `convert`.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/support/source.h"
#include "runtime/base/status.h"

namespace attn::tools {

// These print diagnostics to standard error; their error is invalid_spec, with the diagnostics as
// its payload.

// Parses a source. Errors: it has syntax errors or unknown clauses.
Result<ast::Spec> read_tree(const support::Source& source);

enum class Form : std::uint8_t { dsl, json };

// The spec with the functions that it imports and calls written into it. Errors: what it imports
// cannot be read.
Result<ast::Spec> with_imports(ast::Spec spec, const support::Source& source);

// Prints the tree, and checks that the text parses to the same tree. Errors: the form cannot
// express it, as JSON allows deeper nesting than text, and its comments must be UTF-8.
Result<std::string> print_tree(const ast::Spec& spec, const support::Source& source, Form form);

}  // namespace attn::tools
