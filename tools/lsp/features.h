// What the server answers: one function a request of the protocol. Each gets the parameters as
// sent; reading what they lack throws Json::exception, which the server answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/lsp/workspace.h"

namespace attn::tools::lsp {

// What the client can do, from its `initialize`.
struct Client {
  bool has_snippets = false;
  bool has_document_changes = false;
  bool has_nested_symbols = false;
  bool has_markdown = false;
};

struct Request {
  Workspace& workspace;
  const Client& client;
  Document& document;
  const Analysis& analysis;  // of the document's text
  const Json& params;

  // Offset of params.position in the document.
  std::uint32_t offset() const { return document.text.offset(position_of(params.at("position"))); }
};

// diagnostics.cpp
Json diagnostics_of(const Workspace& workspace, const Document& document, const diag::Sink& sink);
const diag::Sink& found_in(const Document& document);  // all that is known so far
Json code_actions(const Request& request);

// hover.cpp; null where there is nothing to say.
Json hover(const Request& request);
// Whether the answer shows the masks, which take longer to draw.
bool shows_masks(const Request& request);

// describe.cpp
// "tensor doc: i32[B, Skv]", as code.
std::string signature_of(const Symbol& symbol);
// The comment above its definition, or what the language says of it.
std::string prose_of(const Symbol& symbol);
// "[1, 8192]", "4096", "real"; "" if nothing is known.
std::string value_of(const Analysis& analysis, const Symbol& symbol);
std::string to_text(const ast::Number& number);

// completion.cpp
Json completion(const Request& request);

// navigation.cpp
Json definition(const Request& request);
Json references(const Request& request);
Json highlights(const Request& request);
Json prepare_rename(const Request& request);
Json rename(const Request& request);

// outline.cpp
Json document_symbols(const Request& request);
Json folding_ranges(const Request& request);

// tokens.cpp
Json semantic_tokens(const Request& request);
Json token_legend();

// hints.cpp
Json inlay_hints(const Request& request);

// formatting.cpp; null if the text has errors.
Json formatting(const Request& request);

}  // namespace attn::tools::lsp
