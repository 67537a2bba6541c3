// Functions imported by a spec, directly or indirectly.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/support/embedded.h"

namespace attn::sema {

// The files imported by `spec`, each once, in the order in which they are first named; their spans
// follow those of `spec` (diag::Sink::add). A path is relative to the importing file; then the
// standard library is searched. Specs may be untrusted, so a path must stay inside the spec's
// folder or a folder in ATTN_IMPORT_PATH, also after links are resolved. The number of files and
// their total size are limited (library.cpp). Errors are reported to the sink.
struct Library {
  std::vector<std::unique_ptr<const ast::Spec>> files;
  std::map<std::string, const ast::FunctionClause*, std::less<>> functions;
  bool complete = true;  // false: functions of unreadable files are missing
};
Library load_imports(const ast::Spec& spec, diag::Sink& sink);

// Replaces the imports of the spec by the imported functions that it calls. An imported function
// whose name the spec defines too gets a `_` appended.
ast::Spec without_imports(ast::Spec spec, const Library& library);

// Reports errors in a function even if it is not called: a reserved name, duplicate parameters,
// undefined names in the body. `functions` and `names` are those of the enclosing spec that the
// body may use.
void check_function(const ast::FunctionClause& function, const Library& library,
                    std::span<const std::string_view> functions,
                    std::span<const std::string_view> names, diag::Sink& sink);

// Checks all functions of a library file, and returns their number.
std::size_t check_library(const ast::Spec& spec, const Library& library, diag::Sink& sink);

// The files of the standard library ("masks.attn"), which are embedded in the program.
std::span<const support::EmbeddedFile> standard_library();

}  // namespace attn::sema
