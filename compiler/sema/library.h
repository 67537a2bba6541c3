// The functions that files bring in: what a spec imports, and what that imports in turn.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::sema {

// The files imported by `spec`, each once, in the order in which they are first named; places in
// them follow those of `spec` (diag::Sink::add). A path is looked up beside the file that names it,
// then in the standard library. Specs may come from strangers, so a path must stay inside the
// spec's folder or one that ATTN_IMPORT_PATH lists, also after links are resolved. The number of
// files and their total size are limited (library.cpp). Errors of paths and files are reported.
struct Library {
  std::vector<std::unique_ptr<const ast::Spec>> files;
  std::map<std::string, const ast::FunctionClause*, std::less<>> functions;
  bool complete = true;  // else functions of files that could not be read are missing
};
Library load_imports(const ast::Spec& spec, diag::Sink& sink);

// The spec with what it calls of its imports in place of them: a text that stands alone. An
// imported function whose name the spec gives to something of its own gets another, `_` behind it.
ast::Spec without_imports(ast::Spec spec, const Library& library);

// Reports what is wrong with functions whether they are called or not: names that are taken,
// parameters that stand twice, names in bodies that nothing defines. `names` are those of the spec
// around the function, which its body may use.
void check_function(const ast::FunctionClause& function, const Library& library,
                    std::span<const std::string_view> functions,
                    std::span<const std::string_view> names, diag::Sink& sink);

// The same for all functions of a file without an attention, which it returns the number of.
std::size_t check_library(const ast::Spec& spec, const Library& library, diag::Sink& sink);

// A file of the standard library ("masks.attn"), which is part of the program; empty if there is
// none of this name.
std::string_view standard_library(std::string_view name);
std::span<const std::string_view> standard_library_names();

}  // namespace attn::sema
