#include "compiler/ast/comments.h"
#include "compiler/ast/json_clauses.h"
#include "compiler/ast/parse.h"

namespace attn::ast {
namespace {

void read_preamble(const JsonValue& json, JsonExpressions& in, Spec& spec) {
  const JsonMember* preamble = json.find("preamble");
  if (!preamble || !in.is_array(preamble->value, "preamble")) return;
  for (const JsonValue& value : preamble->value.items) {
    spec.preamble.push_back(read_clause(value, in));
    const std::string& word = spec.preamble.back().keyword.text;
    if (in.failed() || word == "fn" || word == "import") continue;
    in.fail(value.span, "the preamble may contain only `fn` and `import` items").help =
        "other clauses belong in `clauses`";
  }
}

std::vector<SpecParameter> read_parameters(const JsonValue& json, JsonExpressions& in) {
  std::vector<SpecParameter> result;
  if (!in.is(json, JsonKind::object, "`parameters`")) return result;
  for (const JsonMember& member : json.members) {
    result.push_back({in.name(member.key, member.key_span), in.optional_expr(member.value)});
  }
  return result;
}

void read_attention(const JsonValue& json, JsonExpressions& in, Spec& spec) {
  spec.name = in.name(in.need(json, "attention", "a spec"), "the attention");
  if (const JsonMember* parameters = json.find("parameters")) {
    spec.parameters = read_parameters(parameters->value, in);
  }
  const JsonValue* list = in.need(json, "clauses", "a spec");
  if (!list || !in.is_array(*list, "clauses")) return;
  for (const JsonValue& item : list->items) {
    spec.clauses.push_back(read_clause(item, in));
    const Name& word = spec.clauses.back().keyword;
    if (word.text == "import") in.fail(word.span, "an import belongs in `preamble`");
  }
}

std::optional<Spec> read_spec(const JsonValue& json, JsonExpressions& in) {
  Spec spec;
  spec.span = json.span;
  if (!in.is(json, JsonKind::object, "a spec")) return std::nullopt;
  spec.is_library = json.find("library") != nullptr;
  if (spec.is_library) {
    in.only(json, {"library", "preamble", "$schema", "below"});
  } else {
    in.only(json, {"attention", "preamble", "parameters", "clauses", "$schema", "above", "beside",
                   "end", "below"});
  }
  spec.comments = in.comments(json);
  spec.end = in.comment_lines(json, "end");
  spec.below = in.comment_lines(json, "below");
  if (const JsonMember* schema = json.find("$schema");
      schema && in.is(schema->value, JsonKind::string, "`$schema`")) {
    spec.schema = schema->value.text;
  }
  read_preamble(json, in, spec);
  if (!spec.is_library) read_attention(json, in, spec);
  if (in.failed()) return std::nullopt;
  normalize_comments(spec);
  return spec;
}

}  // namespace

std::optional<Spec> parse_json(const support::Source& source, diag::Sink& sink) {
  if (!is_readable(source, sink)) return std::nullopt;
  const std::optional<JsonValue> json = read_json(source, sink);
  if (!json) return std::nullopt;
  JsonExpressions in(sink, is_clause);
  return read_spec(*json, in);
}

}  // namespace attn::ast
