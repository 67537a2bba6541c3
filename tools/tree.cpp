#include "tools/tree.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "compiler/ast/comments.h"
#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/sema/library.h"
#include "compiler/sema/other_clauses.h"
#include "runtime/base/check.h"
#include "runtime/io/file.h"
#include "tools/console.h"
#include "tools/report.h"

namespace attn::tools {
namespace {

Error cannot_replace(const std::string& path) {
  return {ErrorCode::io, fmt::format("cannot replace {}: {}", path, std::strerror(errno)), {}, {}};
}

// Creates an empty file beside `path`, with the same permissions. Returns its name.
Result<std::string> make_neighbour(const std::string& path) {
  struct stat old {};
  if (stat(path.c_str(), &old) != 0) return cannot_replace(path);
  std::string name = path + ".XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) return cannot_replace(path);
  const bool permitted = fchmod(file, old.st_mode & 07777) == 0;
  const Error error = cannot_replace(path);
  close(file);
  if (permitted) return name;
  unlink(name.c_str());
  return error;
}

// Prints the diagnostics.
Error refused(const diag::Sink& sink) {
  print_diagnostics(diag::to_text(sink, error_paint()));
  return {ErrorCode::invalid_spec, "the spec has errors", {}, diag::to_json(sink)};
}

Status check_utf8(const support::Source& source) {
  const auto byte = ast::first_not_utf8(source.text());
  if (!byte) return {};
  diag::Sink sink(source);
  sink.report(diag::Code::unexpected_character, *byte,
              "this byte is not UTF-8, which JSON cannot represent");
  return refused(sink);
}

}  // namespace

Result<ast::Spec> read_tree(const support::Source& source) {
  diag::Sink sink(source);
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  const bool whole = spec && sema::has_only_known_clauses(*spec, sink);
  if (!whole) return refused(sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  return std::move(*spec);
}

Result<std::string> print_tree(const ast::Spec& spec, const support::Source& source, Form form) {
  const bool json = form == Form::json;
  if (json) ATTN_RETURN_IF_ERROR(check_utf8(source));
  const support::Source printed(json ? "<result>.json" : "<result>",
                                json ? ast::to_json(spec) : ast::to_dsl(spec));
  diag::Sink sink(printed);
  const std::optional<ast::Spec> again = ast::parse(printed, sink);
  if (!again) return refused(sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  ATTN_CHECK(ast::to_dsl(*again) == ast::to_dsl(spec),
             "the printed text parses to a different tree");
  return std::string(printed.text());
}

Result<ast::Spec> with_imports(ast::Spec spec, const support::Source& source) {
  diag::Sink sink(source);
  const sema::Library library = sema::load_imports(spec, sink);
  if (sink.has_errors()) return refused(sink);
  return sema::without_imports(std::move(spec), library);
}

Status replace_file(const std::string& path, const std::string& text) {
  std::error_code unresolved;
  const std::string target = std::filesystem::canonical(path, unresolved).string();
  if (unresolved) {
    return {ErrorCode::io, fmt::format("cannot replace {}: {}", path, unresolved.message())};
  }
  ATTN_ASSIGN(const std::string neighbour, make_neighbour(target));
  Status status = io::write_file(neighbour, std::as_bytes(std::span(text)));
  if (status.ok() && rename(neighbour.c_str(), target.c_str()) != 0) status = cannot_replace(path);
  if (!status.ok()) unlink(neighbour.c_str());
  return status;
}

}  // namespace attn::tools
