#include "tools/lsp/capabilities.h"

#include <algorithm>

namespace attn::tools::lsp {
namespace {

constexpr int kIncremental = 2;

// The flag at a place of a JSON value that need not exist; false without it.
bool flag(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json.at(at).is_boolean() && json.at(at).get<bool>();
}

bool lists(const Json& json, const char* pointer, const char* word) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json.at(at).is_array()) return false;
  return std::ranges::any_of(json.at(at), [&](const Json& one) { return one == word; });
}

}  // namespace

Encoding encoding_for(const Json& capabilities) {
  constexpr const char* kOffered = "/general/positionEncodings";
  if (lists(capabilities, kOffered, "utf-8")) return Encoding::utf8;
  return Encoding::utf16;
}

Client client_of(const Json& capabilities) {
  return {
      .has_snippets = flag(capabilities, "/textDocument/completion/completionItem/snippetSupport"),
      .has_document_changes = flag(capabilities, "/workspace/workspaceEdit/documentChanges"),
      .has_nested_symbols =
          flag(capabilities, "/textDocument/documentSymbol/hierarchicalDocumentSymbolSupport"),
      .has_markdown = lists(capabilities, "/textDocument/hover/contentFormat", "markdown")};
}

Json capabilities(Encoding encoding) {
  return {{"positionEncoding", encoding == Encoding::utf8 ? "utf-8" : "utf-16"},
          {"textDocumentSync",
           {{"openClose", true}, {"change", kIncremental}, {"save", {{"includeText", false}}}}},
          {"hoverProvider", true},
          {"completionProvider", {{"triggerCharacters", {"\"", ":"}}}},
          {"definitionProvider", true},
          {"referencesProvider", true},
          {"documentHighlightProvider", true},
          {"documentSymbolProvider", true},
          {"foldingRangeProvider", true},
          {"codeActionProvider", {{"codeActionKinds", {"quickfix"}}}},
          {"documentFormattingProvider", true},
          {"renameProvider", {{"prepareProvider", true}}},
          {"inlayHintProvider", true},
          {"semanticTokensProvider", {{"legend", token_legend()}, {"full", true}}}};
}

}  // namespace attn::tools::lsp
