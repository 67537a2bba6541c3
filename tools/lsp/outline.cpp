#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

// Kinds of the protocol.
enum SymbolKind : std::uint8_t {
  kModule = 2,
  kClass = 5,
  kProperty = 7,
  kFunction = 12,
  kVariable = 13,
  kConstant = 14,
  kArray = 18,
};

constexpr std::size_t kLongestDetail = 60;

std::string shortened(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  if (text.size() <= kLongestDetail) return text;
  return text.substr(0, kLongestDetail - 3) + "...";
}

class Outline {
 public:
  explicit Outline(const Request& request) : request_(request), text_(request.document.text) {}

  Json run() {
    Json top = Json::array();
    const ast::Spec& spec = *request_.analysis.spec;
    for (const ast::Clause& item : spec.preamble) put(item, top);
    if (spec.is_library) return top;
    Json children = Json::array();
    for (const ast::SpecParameter& parameter : spec.parameters) {
      const std::string value = parameter.value ? ast::to_dsl(*parameter.value) : "";
      children.push_back(
          symbol(parameter.name.text, value, kConstant, parameter.name.span, parameter.name.span));
    }
    for (const ast::Clause& clause : spec.clauses) put(clause, children);
    Json attention = symbol(spec.name.text, "", kClass, spec.span, spec.name.span);
    attention["children"] = std::move(children);
    top.push_back(std::move(attention));
    return top;
  }

 private:
  // The range must contain the name's; in JSON, a clause may not contain its keyword's key.
  Json symbol(const std::string& name, const std::string& detail, SymbolKind kind, Span whole,
              Span selected) const {
    const Span range{std::min(whole.begin, selected.begin), std::max(whole.end, selected.end)};
    return {{"name", name.empty() ? "?" : name},
            {"detail", shortened(detail)},
            {"kind", kind},
            {"range", to_json(text_.range(range))},
            {"selectionRange", to_json(text_.range(selected))}};
  }

  void put(const ast::Clause& clause, Json& list) const {
    const auto add = [&](const ast::Name& name, const std::string& detail, SymbolKind kind) {
      list.push_back(symbol(name.text, detail, kind, clause.span, name.span));
    };
    if (const auto* function = std::get_if<ast::FunctionClause>(&clause.body)) {
      std::string parameters;
      for (const ast::Name& one : function->parameters) {
        parameters += (parameters.empty() ? "" : ", ") + one.text;
      }
      add(function->name, fmt::format("({})", parameters), kFunction);
    } else if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      add(tensor->name, clause.keyword.text + " " + tensor->dtype.text, kArray);
    } else if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) {
      add(param->name, "param " + param->dtype.text, kVariable);
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      add(let->name, ast::to_dsl(let->value), kVariable);
    } else if (const auto* import = std::get_if<ast::ImportClause>(&clause.body)) {
      add(import->path, "import", kModule);
    } else {
      add(clause.keyword, written(clause), kProperty);
      if (const auto* dims = std::get_if<ast::DimsClause>(&clause.body)) {
        list.back()["children"] = entries(*dims);
      }
    }
  }

  Json entries(const ast::DimsClause& dims) const {
    Json list = Json::array();
    for (const ast::DimEntry& entry : dims.entries) {
      const std::string size = entry.size ? ast::to_dsl(*entry.size) : "";
      list.push_back(symbol(entry.name.text, size, kConstant, entry.name.span, entry.name.span));
    }
    return list;
  }

  // The clause after its keyword, as in the text.
  std::string written(const ast::Clause& clause) const {
    if (request_.analysis.source->is_json() || clause.keyword.span.end > clause.span.end) return "";
    std::string_view rest = request_.analysis.source->text().substr(
        clause.keyword.span.end, clause.span.end - clause.keyword.span.end);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    if (rest.ends_with(';')) rest.remove_suffix(1);
    return std::string(rest);
  }

  const Request& request_;
  const Text& text_;
};

// Lists nested symbols one after another, for clients that do not know nested ones.
void flatten(const Json& symbols, const std::string& uri, const std::string& container,
             Json& list) {
  for (const Json& one : symbols) {
    Json flat = {{"name", one["name"]},
                 {"kind", one["kind"]},
                 {"location", {{"uri", uri}, {"range", one["range"]}}}};
    if (!container.empty()) flat["containerName"] = container;
    list.push_back(std::move(flat));
    if (one.contains("children")) flatten(one["children"], uri, one["name"], list);
  }
}

}  // namespace

Json document_symbols(const Request& request) {
  if (!request.analysis.spec) return Json::array();
  Json nested = Outline(request).run();
  if (request.client.has_nested_symbols) return nested;
  Json flat = Json::array();
  flatten(nested, request.document.uri, "", flat);
  return flat;
}

// Folding ranges of the attention, and of clauses of several lines.
Json folding_ranges(const Request& request) {
  Json list = Json::array();
  if (!request.analysis.spec) return list;
  const auto add = [&](Span span) {
    const Range range = request.document.text.range(span);
    if (range.end.line <= range.begin.line) return;
    list.push_back({{"startLine", range.begin.line}, {"endLine", range.end.line - 1}});
  };
  const ast::Spec& spec = *request.analysis.spec;
  if (!spec.is_library) add(spec.span);
  for (const ast::Clause& clause : spec.preamble) add(clause.span);
  for (const ast::Clause& clause : spec.clauses) add(clause.span);
  return list;
}

}  // namespace attn::tools::lsp
