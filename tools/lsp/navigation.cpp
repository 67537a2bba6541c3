#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "compiler/sema/names.h"
#include "compiler/sema/operations.h"
#include "compiler/support/text.h"
#include "tools/lsp/features.h"
#include "tools/lsp/messages.h"

namespace attn::tools::lsp {
namespace {

const Use* use_at(const Request& request) { return request.analysis.index.at(request.offset()); }

// The same file for all spellings of its path.
std::string file_of(const support::Source& source) {
  std::error_code error;
  const auto found = std::filesystem::weakly_canonical(source.name(), error);
  return error || source.name().starts_with("std:") ? source.name() : found.string();
}

FilePlace place_of(const Analysis& analysis, Span span) {
  const auto [source, local] = analysis.locate(span);
  return {file_of(*source), local};
}

// Spans by file, each file with its source.
struct Places {
  const support::Source* source = nullptr;
  std::set<Span, SpanOrder> spans;
};
using PlacesByFile = std::map<std::string, Places>;

void add(PlacesByFile& places, const Analysis& analysis, Span span) {
  const auto [source, local] = analysis.locate(span);
  Places& file = places[file_of(*source)];
  if (!file.source) file.source = source;
  file.spans.insert(local);
}

// What a name of one file means to the others: its definition is the same.
struct Everywhere {
  std::vector<std::shared_ptr<const Analysis>> files;  // that know the name, and own the sources
  PlacesByFile places;
  bool has_all = true;
};

bool is_shared(const Symbol& symbol) {
  return symbol.meaning == Meaning::function && symbol.definition;
}

Everywhere uses_everywhere(const Request& request, const Use& use) {
  const Symbol& symbol = request.analysis.index.symbol(use);
  Everywhere found;
  found.files.push_back(request.document.analysis);
  for (const Span span : request.analysis.index.uses_of(use.symbol)) {
    add(found.places, request.analysis, span);
  }
  if (!is_shared(symbol)) return found;
  const FilePlace home = place_of(request.analysis, *symbol.definition);
  const std::string folder_of = home.path.starts_with("std:") ? request.document.path : home.path;
  const Workspace::Neighbours beside = request.workspace.neighbours(folder_of);
  found.has_all = beside.has_all;
  for (const auto& file : beside.files) {
    const auto& symbols = file->index.symbols();
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i].name != symbol.name || !is_shared(symbols[i])) continue;
      if (place_of(*file, *symbols[i].definition) != home) continue;
      found.files.push_back(file);
      for (const Span span : file->index.uses_of(i)) add(found.places, *file, span);
    }
  }
  return found;
}

// Where the editor finds the places of a file.
class FileForEditor {
 public:
  FileForEditor(const Request& request, const support::Source& source)
      : is_own_(&source == request.analysis.source.get()),
        uri_(is_own_ ? request.document.uri : request.workspace.uri_of_source(source)),
        text_(is_own_ ? request.document.text : request.workspace.text_of(source)) {}

  const std::string& uri() const { return uri_; }
  Json range(Span span) const { return to_json(text_.range(span)); }
  Json location(Span span) const { return {{"uri", uri_}, {"range", range(span)}}; }

 private:
  bool is_own_;
  std::string uri_;
  Text text_;
};

// The imported file, by its path as written.
const support::Source* imported(const Analysis& analysis, const std::string& path) {
  for (const auto& file : analysis.library.files) {
    const auto [source, local] = analysis.locate(file->span);
    if (source->name().ends_with(path)) return source;
    (void)local;
  }
  return nullptr;
}

[[noreturn]] void refuse(const std::string& why) { throw RpcError{RpcCode::request_failed, why}; }

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_more = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, is_more);
}

bool is_reserved(std::string_view name) {
  constexpr std::string_view kWords[] = {"return", "in", "true", "True", "false", "False"};
  return sema::contains(kWords, name) || sema::is_bound_name(name) || sema::is_dimension_name(name);
}

// The use that may be renamed; throws RpcError with the reason if it may not.
const Use& renamable(const Request& request) {
  const Use* use = use_at(request);
  if (!use) refuse("there is no name here");
  const Symbol& symbol = request.analysis.index.symbol(*use);
  const bool is_of_language =
      symbol.meaning == Meaning::word || symbol.meaning == Meaning::dimension;
  if (is_of_language || symbol.meaning == Meaning::import) {
    refuse(fmt::format("{} is a {} and cannot be renamed", support::quoted(symbol.name),
                       symbol.meaning == Meaning::import ? "path" : "word of the language"));
  }
  if (place_of(request.analysis, *symbol.definition).path.starts_with("std:")) {
    refuse(fmt::format("{} is defined in the standard library", support::quoted(symbol.name)));
  }
  return *use;
}

// Another meaning of the name, in a file that knows the symbol.
void check_not_taken(const Request& request, const Analysis& file, const std::string& name) {
  for (const Symbol& other : file.index.symbols()) {
    if (other.name != name || !other.definition || other.meaning == Meaning::attention) continue;
    const bool is_here = &file == &request.analysis;
    refuse(fmt::format("{} is already defined{}", support::quoted(name),
                       is_here ? "" : " in " + file.source->name()));
  }
}

void check_new_name(const Request& request, const Symbol& symbol, const std::string& name,
                    const Everywhere& found) {
  if (!is_name(name)) refuse(fmt::format("{} is not a name", support::quoted(name)));
  if (is_reserved(name)) refuse(fmt::format("{} is reserved", support::quoted(name)));
  const auto functions = sema::function_names();
  if (symbol.meaning == Meaning::function && sema::contains(functions, name)) {
    refuse(fmt::format("{} is a built-in function", support::quoted(name)));
  }
  if (symbol.meaning == Meaning::attention || name == symbol.name) return;
  for (const auto& file : found.files) check_not_taken(request, *file, name);
}

// Half a rename would break the specs that were not read.
void check_complete(const Everywhere& found) {
  if (found.has_all) return;
  refuse(
      fmt::format("more than {} specs may use the name: those open, and those beside the file "
                  "that defines it",
                  Workspace::kMostNeighbours));
}

// Positions in an imported file are those of its text on the disk.
void check_saved(const Request& request, const support::Source& source) {
  const Document* open = request.workspace.document_at(source.name());
  if (open == nullptr || open->text.bytes() == source.text()) return;
  refuse(fmt::format("{} has changes: save it first", source.name()));
}

}  // namespace

Json definition(const Request& request) {
  const Use* use = use_at(request);
  if (!use) return nullptr;
  const Symbol& symbol = request.analysis.index.symbol(*use);
  if (symbol.meaning == Meaning::import) {
    const support::Source* source = imported(request.analysis, symbol.name);
    return source ? FileForEditor(request, *source).location({0, 0}) : Json(nullptr);
  }
  if (!symbol.definition) return nullptr;
  const auto [source, local] = request.analysis.locate(*symbol.definition);
  return FileForEditor(request, *source).location(local);
}

Json references(const Request& request) {
  const Use* use = use_at(request);
  if (!use) return Json::array();
  const Symbol& symbol = request.analysis.index.symbol(*use);
  const bool with_definition = request.params.at("context").at("includeDeclaration").get<bool>();
  std::optional<FilePlace> home;
  if (symbol.definition) home = place_of(request.analysis, *symbol.definition);
  Json list = Json::array();
  const Everywhere found = uses_everywhere(request, *use);
  for (const auto& [file, places] : found.places) {
    const FileForEditor there(request, *places.source);
    for (const Span span : places.spans) {
      if (!with_definition && home && *home == FilePlace{file, span}) continue;
      list.push_back(there.location(span));
    }
  }
  return list;
}

Json highlights(const Request& request) {
  Json list = Json::array();
  const Use* use = use_at(request);
  if (!use) return list;
  for (const Span span : request.analysis.index.uses_of(use->symbol)) {
    const auto [source, local] = request.analysis.locate(span);
    if (source == request.analysis.source.get()) {
      list.push_back({{"range", to_json(request.document.text.range(local))}});
    }
  }
  return list;
}

Json prepare_rename(const Request& request) {
  const Use& use = renamable(request);
  return {{"range", to_json(request.document.text.range(use.span))},
          {"placeholder", request.analysis.index.symbol(use).name}};
}

Json rename(const Request& request) {
  const Use& use = renamable(request);
  const std::string name = request.params.at("newName").get<std::string>();
  const Everywhere found = uses_everywhere(request, use);
  check_new_name(request, request.analysis.index.symbol(use), name, found);
  check_complete(found);
  Json changes = Json::object(), document_changes = Json::array();
  for (const auto& [file, places] : found.places) {
    Json edits = Json::array();
    check_saved(request, *places.source);
    const FileForEditor there(request, *places.source);
    for (const Span span : places.spans) {
      edits.push_back({{"range", there.range(span)}, {"newText", name}});
    }
    const Document* open = request.workspace.find(there.uri());
    document_changes.push_back(
        {{"textDocument",
          {{"uri", there.uri()}, {"version", open ? Json(open->version) : Json(nullptr)}}},
         {"edits", edits}});
    changes[there.uri()] = std::move(edits);
  }
  if (request.client.has_document_changes) return {{"documentChanges", document_changes}};
  return {{"changes", changes}};
}

}  // namespace attn::tools::lsp
