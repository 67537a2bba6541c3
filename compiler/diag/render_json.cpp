#include <nlohmann/json.hpp>

#include "compiler/diag/diagnostics.h"

namespace attn::diag {
namespace {

using Json = nlohmann::ordered_json;

void put_place(Json& json, const support::Source& source, support::Span span) {
  const support::Place begin = source.place(span.begin);
  const support::Place end = source.place(span.end);
  json["line"] = begin.line;
  json["column"] = begin.column;
  json["end_line"] = end.line;
  json["end_column"] = end.column;
}

Json to_json(const Diagnostic& diagnostic, const support::Source& source) {
  Json json;
  json["code"] = id_of(diagnostic.code);
  json["severity"] = to_string(severity_of(diagnostic.code));
  json["message"] = diagnostic.message;
  json["file"] = source.name();
  put_place(json, source, diagnostic.span);
  json["labels"] = Json::array();
  for (const Label& label : diagnostic.labels) {
    Json& entry = json["labels"].emplace_back();
    entry["message"] = label.message;
    put_place(entry, source, label.span);
  }
  json["help"] = diagnostic.help;
  return json;
}

}  // namespace

std::string to_json(const Sink& sink) {
  Json json;
  json["diagnostics"] = Json::array();
  for (const Diagnostic& diagnostic : sink.sorted()) {
    json["diagnostics"].push_back(to_json(diagnostic, sink.source()));
  }
  json["errors"] = sink.error_count();
  // A file name need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attn::diag
