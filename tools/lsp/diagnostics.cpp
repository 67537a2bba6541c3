#include <fmt/format.h>

#include <algorithm>

#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

enum ProtocolSeverity : std::uint8_t { kError = 1, kWarning = 2, kInformation = 3 };
constexpr int kUnnecessary = 1;  // a tag: shown faded

int severity_number(diag::Severity severity) {
  switch (severity) {
    case diag::Severity::error: return kError;
    case diag::Severity::warning: return kWarning;
    case diag::Severity::note: return kInformation;
  }
  return kInformation;
}

// The import of the file, or the first one, which imports it indirectly.
Span import_of(const Analysis& analysis, const support::Source& file) {
  Span first{};
  if (!analysis.spec) return first;
  for (const ast::Clause& item : analysis.spec->preamble) {
    const auto* import = std::get_if<ast::ImportClause>(&item.body);
    if (!import) continue;
    if (file.name().ends_with(import->path.text)) return import->path.span;
    if (first == Span{}) first = import->path.span;
  }
  return first;
}

Json related(const Workspace& workspace, const Document& document, const diag::Location& at,
             const std::string& message) {
  const bool is_own = at.source == document.analysis->source.get();
  const Range range =
      is_own ? document.text.range(at.span) : workspace.text_of(*at.source).range(at.span);
  const std::string uri = is_own ? document.uri : workspace.uri_of_source(*at.source);
  return {{"location", {{"uri", uri}, {"range", to_json(range)}}}, {"message", message}};
}

Json diagnostic_json(const Workspace& workspace, const Document& document, const diag::Sink& sink,
                     const diag::Diagnostic& diagnostic) {
  const diag::Location at = sink.locate(diagnostic.span);
  const bool is_own = at.source == &sink.source();
  const Span place = is_own ? at.span : import_of(*document.analysis, *at.source);
  std::string message = diagnostic.message;
  if (!is_own) message = fmt::format("in the imported file {}: {}", at.source->name(), message);
  if (!diagnostic.help.empty()) message += "\nhelp: " + diagnostic.help;
  Json json = {{"range", to_json(document.text.range(place))},
               {"severity", severity_number(diag::severity_of(diagnostic.code))},
               {"code", diag::id_of(diagnostic.code)},
               {"source", "attnc"},
               {"message", message}};
  if (diagnostic.code == diag::Code::unused_name) json["tags"] = {kUnnecessary};
  Json labels = Json::array();
  if (!is_own) labels.push_back(related(workspace, document, at, "here"));
  for (const diag::Label& label : diagnostic.labels) {
    labels.push_back(related(workspace, document, sink.locate(label.span), label.message));
  }
  if (!labels.empty()) json["relatedInformation"] = std::move(labels);
  return json;
}

bool overlap(Span a, Span b) { return a.begin <= b.end && b.begin <= a.end; }

// The edits of a fix; null if one is in another file.
Json edits_of(const Document& document, const diag::Sink& sink, const diag::Fix& fix) {
  Json edits = Json::array();
  for (const diag::Edit& edit : fix.edits) {
    const diag::Location at = sink.locate(edit.span);
    if (at.source != &sink.source()) return nullptr;
    edits.push_back({{"range", to_json(document.text.range(at.span))}, {"newText", edit.text}});
  }
  return edits;
}

bool wants_fixes(const Json& params) {
  const auto only = params.at("context").find("only");
  if (only == params.at("context").end() || !only->is_array()) return true;
  return std::ranges::any_of(*only, [](const Json& kind) {
    return kind.is_string() && std::string_view("quickfix").starts_with(kind.get<std::string>());
  });
}

}  // namespace

const diag::Sink& found_in(const Document& document) {
  return document.slow.found ? *document.slow.found : *document.analysis->found;
}

Json diagnostics_of(const Workspace& workspace, const Document& document, const diag::Sink& sink) {
  Json list = Json::array();
  for (const diag::Diagnostic& diagnostic : sink.sorted()) {
    list.push_back(diagnostic_json(workspace, document, sink, diagnostic));
  }
  return list;
}

Json code_actions(const Request& request) {
  Json actions = Json::array();
  if (!wants_fixes(request.params)) return actions;
  const Document& document = request.document;
  const Span wanted = document.text.span(range_of(request.params.at("range")));
  const diag::Sink& sink = found_in(document);
  for (const diag::Diagnostic& diagnostic : sink.sorted()) {
    const diag::Location at = sink.locate(diagnostic.span);
    if (at.source != &sink.source() || !overlap(at.span, wanted)) continue;
    for (const diag::Fix& fix : diagnostic.fixes) {
      const Json edits = edits_of(document, sink, fix);
      if (edits.is_null()) continue;
      actions.push_back({{"title", fix.title},
                         {"kind", "quickfix"},
                         {"isPreferred", diagnostic.fixes.size() == 1},
                         {"diagnostics", Json::array({diagnostic_json(request.workspace, document,
                                                                      sink, diagnostic)})},
                         {"edit", {{"changes", {{document.uri, edits}}}}}});
    }
  }
  return actions;
}

}  // namespace attn::tools::lsp
