#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "compiler/ast/comments.h"
#include "compiler/ast/json_expressions.h"
#include "compiler/ast/parse.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using support::quoted;

using Body = decltype(Clause::body);

// A clause to read: its object, the value of its keyword, and what that is in messages.
struct Given {
  const JsonValue& json;
  const JsonValue& value;
  std::string_view what;
  JsonExpressions& in;

  Name name() const { return in.name(&value, what); }
};

template <typename T>
Body of_name(const Given& given) {
  return T{given.name()};
}

template <typename T>
Body of_names(const Given& given) {
  return T{given.in.names(given.value, given.what)};
}

template <typename T>
Body of_expression(const Given& given) {
  return T{given.in.expr(given.value)};
}

Body dims(const Given& given) {
  JsonExpressions& in = given.in;
  DimsClause clause;
  if (!in.is(given.value, JsonKind::object, given.what)) return clause;
  for (const JsonMember& member : given.value.members) {
    DimEntry entry{in.name(member.key, member.key_span), std::nullopt, {}};
    if (member.value.kind == JsonKind::array) {
      entry.set = in.exprs(member.value, member.key);
    } else {
      entry.size = in.optional_expr(member.value);
    }
    clause.entries.push_back(std::move(entry));
  }
  return clause;
}

// The member that holds a layout with arguments, or nullptr.
const JsonMember* with_arguments(const JsonValue& json) {
  for (const std::string_view kind : {"strides", "paged", "thd"}) {
    if (const JsonMember* member = json.find(kind)) return member;
  }
  return nullptr;
}

LayoutArgument argument(const JsonMember& member, JsonExpressions& in) {
  return {in.name(member.key, member.key_span), in.expr(member.value)};
}

// An argument in a list; a named one is {"page": 64}.
LayoutArgument argument(const JsonValue& json, JsonExpressions& in) {
  const bool is_named =
      json.kind == JsonKind::object && json.members.size() == 1 && !json.find("number");
  if (is_named) return argument(json.members[0], in);
  return {std::nullopt, in.expr(json)};
}

LayoutEntry layout_entry(std::optional<Name> tensor, const JsonValue& json, JsonExpressions& in) {
  const JsonMember* kind = with_arguments(json);
  if (!kind) return {std::move(tensor), in.name(&json, "the layout"), {}};
  in.only(json, {kind->key});
  LayoutEntry entry{std::move(tensor), {kind->key, kind->key_span}, {}};
  const JsonValue& list = kind->value;
  if (list.kind == JsonKind::object) {
    for (const JsonMember& member : list.members) entry.arguments.push_back(argument(member, in));
  } else if (in.is_array(list, kind->key)) {
    for (const JsonValue& item : list.items) entry.arguments.push_back(argument(item, in));
  }
  if (entry.arguments.empty() && !in.failed()) {
    in.fail(list.span, fmt::format("{} must not be empty", quoted(kind->key)));
  }
  return entry;
}

// "bshd", {"strides": [...]}, {"paged": {"page": 64}}, or one of them for each tensor:
// {"q": "bshd", "k": ...}.
Body layout(const Given& given) {
  const JsonValue& json = given.value;
  LayoutClause clause;
  if (json.kind == JsonKind::string || with_arguments(json)) {
    clause.entries.push_back(layout_entry(std::nullopt, json, given.in));
  } else if (given.in.is(json, JsonKind::object, given.what)) {
    for (const JsonMember& member : json.members) {
      clause.entries.push_back(
          layout_entry(given.in.name(member.key, member.key_span), member.value, given.in));
    }
  }
  return clause;
}

// ["monotone", {"runs": [8]}]
std::vector<Fact> facts(const JsonValue& json, JsonExpressions& in) {
  std::vector<Fact> list;
  if (!in.is_array(json, "facts")) return list;
  for (const JsonValue& item : json.items) {
    if (item.kind != JsonKind::object || item.members.size() != 1) {
      list.push_back({in.name(&item, "one of `facts`")});
      continue;
    }
    const JsonMember& member = item.members[0];
    list.push_back({in.name(member.key, member.key_span), in.exprs(member.value, "a fact")});
  }
  return list;
}

Body tensor(const Given& given) {
  JsonExpressions& in = given.in;
  const JsonValue* dtype = in.need(given.json, "dtype", "a tensor");
  const JsonValue* shape = in.need(given.json, "shape", "a tensor");
  TensorClause clause{given.name(), in.name(dtype, "its type"),
                      shape ? in.exprs(*shape, "shape") : std::vector<Expr>{}};
  if (const JsonMember* list = given.json.find("facts")) clause.facts = facts(list->value, in);
  if (const JsonMember* fallback = given.json.find("default")) {
    clause.fallback = in.fallback(fallback->value);
  }
  return clause;
}

Body param(const Given& given) {
  const JsonValue* dtype = given.in.need(given.json, "dtype", "a param");
  return ParamClause{given.name(), given.in.name(dtype, "its type")};
}

LetClause inner_let(const JsonValue& json, JsonExpressions& in) {
  const JsonValue* bound = in.need(json, "value", "a let");
  return {in.name(in.need(json, "let", "a let"), "the let"), bound ? in.expr(*bound) : Expr{}};
}

Body prologue(const Given& given) {
  const JsonValue* value = given.in.need(given.json, "value", "a prologue");
  return PrologueClause{given.name(), value ? given.in.expr(*value) : Expr{}};
}

// "far", beside "inputs": {"k": "k_far"}
Body branch(const Given& given) {
  BranchClause clause{given.name()};
  const JsonMember* inputs = given.json.find("inputs");
  if (!inputs || !given.in.is(inputs->value, JsonKind::object, "`inputs`")) return clause;
  for (const JsonMember& member : inputs->value.members) {
    clause.inputs.push_back({given.in.name(member.key, member.key_span),
                             given.in.name(&member.value, "a tensor of `inputs`")});
  }
  return clause;
}

// "k", beside "from": 0, "to": 512
Body values(const Given& given) {
  const JsonValue* first = given.in.need(given.json, "from", "`values`");
  const JsonValue* end = given.in.need(given.json, "to", "`values`");
  return ValuesClause{given.name(), first ? given.in.expr(*first) : Expr{},
                      end ? given.in.expr(*end) : Expr{}};
}

// "chosen", beside "counts": "count"
Body gather(const Given& given) {
  GatherClause clause{given.name()};
  const JsonMember* counts = given.json.find("counts");
  if (counts) clause.counts = given.in.name(&counts->value, "the tensor of counts");
  return clause;
}

Body let(const Given& given) { return inner_let(given.json, given.in); }

Body function(const Given& given) {
  JsonExpressions& in = given.in;
  FunctionClause clause;
  clause.name = given.name();
  if (const JsonValue* parameters = in.need(given.json, "parameters", "a function")) {
    clause.parameters = in.names(*parameters, "parameters");
  }
  if (const JsonMember* lets = given.json.find("lets"); lets && in.is_array(lets->value, "lets")) {
    for (const JsonValue& item : lets->value.items) {
      if (!in.is(item, JsonKind::object, "a let")) continue;
      in.only(item, {"let", "value"});
      clause.lets.push_back(inner_let(item, in));
    }
  }
  if (const JsonValue* result = in.need(given.json, "value", "a function")) {
    clause.value = in.expr(*result);
  }
  return clause;
}

Body import(const Given& given) {
  const JsonValue& json = given.value;
  const bool is_path = given.in.is(json, JsonKind::string, given.what) &&
                       json.text.find_first_of("\"\r\n") == std::string::npos;
  if (!is_path && !given.in.failed()) {
    given.in.fail(json.span, "a path must not contain quotes or line breaks");
  }
  return ImportClause{{json.text, json.span}};
}

Body dropout(const Given& given) {
  const JsonMember* keep = given.json.find("keep");
  DropoutClause clause{given.in.expr(given.value), std::nullopt};
  if (keep) clause.keep = given.in.expr(keep->value);
  return clause;
}

// {"q": null, "kv": default}
Body lengths(const Given& given) {
  LengthsClause clause;
  if (!given.in.is(given.value, JsonKind::object, given.what)) return clause;
  for (const JsonMember& member : given.value.members) {
    clause.entries.push_back({given.in.name(member.key, member.key_span), std::nullopt});
    if (member.value.kind != JsonKind::null) {
      clause.entries.back().fallback = given.in.fallback(member.value);
    }
  }
  return clause;
}

Body deterministic(const Given& given) {
  if (given.value.kind != JsonKind::boolean || given.value.text != "true") {
    given.in.fail(given.value.span, "`deterministic` must be true or omitted");
  }
  return DeterministicClause{};
}

// "bf16", beside "with": {"k": "e4m3", "v": "e4m3"}
Body dtype(const Given& given) {
  JsonExpressions& in = given.in;
  DtypeClause clause{given.name()};
  const JsonMember* with = given.json.find("with");
  if (!with || !in.is(with->value, JsonKind::object, "`with`")) return clause;
  for (const JsonMember& member : with->value.members) {
    clause.entries.push_back(
        {in.name(member.key, member.key_span), in.name(&member.value, "its type")});
  }
  return clause;
}

// "per_tensor", beside "with": {"o": {"dtype": "bf16"}, "scale_s": 256}; or "kv" beside "of":
// "head"
Body quantize(const Given& given) {
  JsonExpressions& in = given.in;
  QuantizeClause clause{given.name()};
  if (const JsonMember* of = given.json.find("of"))
    clause.of = in.name(&of->value, "what has a scale");
  const JsonMember* with = given.json.find("with");
  if (!with || !in.is(with->value, JsonKind::object, "`with`")) return clause;
  for (const JsonMember& member : with->value.members) {
    QuantizeEntry entry{in.name(member.key, member.key_span)};
    if (const JsonMember* dtype = member.value.find("dtype")) {
      in.only(member.value, {"dtype"});
      entry.dtype = in.name(&dtype->value, "its type");
    } else {
      entry.fallback = in.fallback(member.value);
    }
    clause.entries.push_back(std::move(entry));
  }
  return clause;
}

struct ClauseForm {
  std::string_view keyword;
  Body (*read)(const Given& given);
  std::string_view what;                        // the keyword's value, in messages
  std::array<std::string_view, 4> beside = {};  // keys beside the keyword
};

// In the order in which keywords are looked for: `dtype` is also a key of others.
constexpr ClauseForm kJsonClauses[] = {
    {"tensor", tensor, "the tensor", {"dtype", "shape", "facts", "default"}},
    {"learn", tensor, "the tensor", {"dtype", "shape", "facts", "default"}},
    {"param", param, "the param", {"dtype"}},
    {"let", let, "the let", {"value"}},
    {"fn", function, "the function", {"parameters", "lets", "value"}},
    {"import", import, "the path of an import"},
    {"dims", dims, "`dims`"},
    {"layout", layout, "a layout"},
    {"scale", of_expression<ScaleClause>, ""},
    {"score", of_expression<ScoreClause>, ""},
    {"mask", of_expression<MaskClause>, ""},
    {"outputs", of_names<OutputsClause>, "outputs"},
    {"align", of_name<AlignClause>, "the alignment"},
    {"sink", of_expression<SinkClause>, ""},
    {"dropout", dropout, "", {"keep"}},
    {"lengths", lengths, "`lengths`"},
    {"grad", of_names<GradClause>, "grad"},
    {"deterministic", deterministic, ""},
    {"normalize", of_name<NormalizeClause>, "the normalization"},
    {"weight", of_expression<WeightClause>, ""},
    {"epilogue", of_expression<EpilogueClause>, ""},
    {"gate", of_expression<EpilogueClause>, ""},
    {"combine", of_expression<EpilogueClause>, ""},
    {"branch", branch, "the branch", {"inputs"}},
    {"prologue", prologue, "the tensor of a prologue", {"value"}},
    {"values", values, "the tensor of values", {"from", "to"}},
    {"gather", gather, "the tensor of keys", {"counts"}},
    {"quantize", quantize, "the quantization", {"of", "with"}},
    {"shard", of_name<ShardClause>, "what is sharded"},
    {"dtype", dtype, "the type", {"with"}},
};

Clause known(const JsonValue& json, const JsonMember& word, const ClauseForm& form,
             JsonExpressions& in) {
  Clause clause{json.span, {word.key, word.key_span}, {}, in.comments(json)};
  std::vector<std::string_view> keys{form.keyword};
  std::ranges::copy_if(form.beside, std::back_inserter(keys),
                       [](std::string_view key) { return !key.empty(); });
  keys.insert(keys.end(), {"above", "beside"});
  in.only(json, keys);
  clause.body = form.read({json, word.value, form.what, in});
  return clause;
}

void collect_words(const JsonValue& json, std::vector<std::string>& words) {
  if (json.kind == JsonKind::string) words.push_back(json.text);
  for (const JsonValue& item : json.items) collect_words(item, words);
  for (const JsonMember& member : json.members) {
    words.push_back(member.key);
    collect_words(member.value, words);
  }
}

Clause other(const JsonValue& json, const JsonMember& word) {
  OtherClause body;
  for (const JsonMember& member : json.members) {
    if (&member != &word) body.words.push_back(member.key);
    collect_words(member.value, body.words);
  }
  return {json.span, {word.key, word.key_span}, std::move(body)};
}

// Whether a key is the keyword of a clause.
bool is_clause(std::string_view key) {
  return std::ranges::find(kJsonClauses, key, &ClauseForm::keyword) != std::end(kJsonClauses);
}

// Reads one clause, whose keyword is a key of the object; `dtype` only if there is no other
// keyword.
Clause read_clause(const JsonValue& json, JsonExpressions& in) {
  if (!in.is(json, JsonKind::object, "a clause")) return {};
  for (const ClauseForm& form : kJsonClauses) {
    if (const JsonMember* word = json.find(form.keyword)) return known(json, *word, form, in);
  }
  const auto word = std::ranges::find_if(json.members, [](const JsonMember& member) {
    return member.key != "above" && member.key != "beside";
  });
  if (word != json.members.end()) return other(json, *word);
  in.fail(json.span, "a clause needs a key with its name");
  return {};
}

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
