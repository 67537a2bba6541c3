#include "tools/tree.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "compiler/ast/parse.h"
#include "compiler/sema/other_clauses.h"
#include "runtime/io/file.h"

namespace attn::tools {
namespace {

Error cannot_replace(const std::string& path) {
  return {ErrorCode::io, fmt::format("cannot replace {}: {}", path, std::strerror(errno)), {}, {}};
}

// An empty file of a new name beside `path`, with its permissions.
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

}  // namespace

std::optional<ast::Spec> read_tree(const support::Source& source) {
  diag::Sink sink(source);
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  const bool whole = spec && sema::has_only_known_clauses(*spec, sink);
  fmt::print(stderr, "{}", diag::to_text(sink));
  if (!whole) return std::nullopt;
  return spec;
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
