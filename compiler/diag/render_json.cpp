#include "compiler/diag/render_json.h"

#include <nlohmann/json.hpp>

namespace attn::diag {
namespace {

using Json = nlohmann::ordered_json;

void put_place(Json& json, const Location& location) {
  const support::Place begin = location.source->place(location.span.begin);
  const support::Place end = location.source->place(location.span.end);
  json["file"] = location.source->name();
  json["line"] = begin.line;
  json["column"] = begin.column;
  json["end_line"] = end.line;
  json["end_column"] = end.column;
}

Json to_json(const Diagnostic& diagnostic, const Sink& sink) {
  Json json;
  json["code"] = id_of(diagnostic.code);
  json["severity"] = to_string(severity_of(diagnostic.code));
  json["message"] = diagnostic.message;
  put_place(json, sink.locate(diagnostic.span));
  json["labels"] = Json::array();
  for (const Label& label : diagnostic.labels) {
    Json& entry = json["labels"].emplace_back();
    entry["message"] = label.message;
    put_place(entry, sink.locate(label.span));
  }
  json["help"] = diagnostic.help;
  json["fixes"] = Json::array();
  for (const Fix& fix : diagnostic.fixes) {
    Json& entry = json["fixes"].emplace_back(Json{{"title", fix.title}, {"edits", Json::array()}});
    for (const Edit& edit : fix.edits) {
      Json& change = entry["edits"].emplace_back(Json{{"text", edit.text}});
      put_place(change, sink.locate(edit.span));
    }
  }
  return json;
}

}  // namespace

Json json_of(const Sink& sink) {
  Json json;
  json["diagnostics"] = Json::array();
  for (const Diagnostic& diagnostic : sink.sorted()) {
    json["diagnostics"].push_back(to_json(diagnostic, sink));
  }
  json["errors"] = sink.error_count();
  return json;
}

std::string to_json(const Sink& sink) {
  return json_of(sink).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attn::diag
