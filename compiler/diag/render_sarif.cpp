#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/diag/diagnostics.h"
#include "compiler/diag/explanations.h"

namespace attn::diag {
namespace {

using Json = nlohmann::ordered_json;

// A path as a URI reference (RFC 3986).
std::string uri(std::string_view path) {
  std::string out = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool plain = alphanumeric || std::string_view("-._~/").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

Json artifact(const Location& at) { return {{"uri", uri(at.source->name())}}; }

Json region(const Location& at) {
  const support::Place begin = at.source->place(at.span.begin);
  const support::Place end = at.source->place(at.span.end);
  return {{"startLine", begin.line},
          {"startColumn", begin.column},
          {"endLine", end.line},
          {"endColumn", end.column}};
}

Json location(const Location& at) {
  return {{"physicalLocation", {{"artifactLocation", artifact(at)}, {"region", region(at)}}}};
}

// Every edit as a change of its own file, since those of a fix are few.
Json fix_of(const Fix& fix, const Sink& sink) {
  Json changes = Json::array();
  for (const Edit& edit : fix.edits) {
    const Location at = sink.locate(edit.span);
    const Json replacement = {{"deletedRegion", region(at)},
                              {"insertedContent", {{"text", edit.text}}}};
    changes.push_back(
        {{"artifactLocation", artifact(at)}, {"replacements", Json::array({replacement})}});
  }
  return {{"description", {{"text", fix.title}}}, {"artifactChanges", std::move(changes)}};
}

std::string_view level(Severity severity) {
  return to_string(severity);
}  // SARIF uses the same words

Json rule(Code code) {
  return {{"id", id_of(code)},
          {"shortDescription", {{"text", summary_of(code)}}},
          {"fullDescription", {{"text", explanation_of(code).text}}},
          {"defaultConfiguration", {{"level", level(severity_of(code))}}}};
}

Json result(const Diagnostic& diagnostic, const Sink& sink) {
  std::string message = diagnostic.message;
  if (!diagnostic.help.empty()) message += "\nhelp: " + diagnostic.help;
  Json related = Json::array();
  for (const Label& label : diagnostic.labels) {
    Json place = location(sink.locate(label.span));
    place["message"] = {{"text", label.message}};
    related.push_back(std::move(place));
  }
  Json json = {{"ruleId", id_of(diagnostic.code)},
               {"ruleIndex", static_cast<std::size_t>(diagnostic.code)},
               {"level", level(severity_of(diagnostic.code))},
               {"message", {{"text", message}}},
               {"locations", Json::array({location(sink.locate(diagnostic.span))})}};
  if (!related.empty()) json["relatedLocations"] = std::move(related);
  for (const Fix& fix : diagnostic.fixes) json["fixes"].push_back(fix_of(fix, sink));
  return json;
}

Json driver(std::string_view version) {
  Json rules = Json::array();
  for (const Code code : all_codes()) rules.push_back(rule(code));
  return {{"name", "attnc"}, {"version", version}, {"rules", std::move(rules)}};
}

Json invocation(const std::vector<std::string>& failures) {
  Json json = {{"executionSuccessful", failures.empty()}};
  for (const std::string& failure : failures) {
    json["toolExecutionNotifications"].push_back(
        {{"level", "error"}, {"message", {{"text", failure}}}});
  }
  return json;
}

}  // namespace

std::string to_sarif(const std::vector<const Sink*>& sinks,
                     const std::vector<std::string>& failures, std::string_view version) {
  Json results = Json::array();
  for (const Sink* sink : sinks) {
    for (const Diagnostic& diagnostic : sink->sorted()) {
      results.push_back(result(diagnostic, *sink));
    }
  }
  Json run = {{"tool", {{"driver", driver(version)}}},
              {"columnKind", "unicodeCodePoints"},
              {"invocations", Json::array({invocation(failures)})},
              {"results", std::move(results)}};
  const Json log = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                    {"version", "2.1.0"},
                    {"runs", Json::array({std::move(run)})}};
  return log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attn::diag
