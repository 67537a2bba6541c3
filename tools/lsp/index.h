// What each name of a spec means, and where: of the spec itself and of the files it imports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/sema/library.h"
#include "tools/lsp/words.h"

namespace attn::tools::lsp {

using support::Span;

// Orders spans by their beginning.
struct SpanOrder {
  bool operator()(Span a, Span b) const {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  }
};

enum class Meaning : std::uint8_t {
  attention,
  parameter,  // of the spec
  dimension,
  tensor,
  param,
  let,
  branch,
  function,
  argument,  // of a function
  local,     // a value of a function's body
  variable,  // of a reduction
  import,    // the path of a file
  word,      // of the language
};

struct Symbol {
  Meaning meaning = Meaning::word;
  std::string name;
  // Span of the defining name, numbered as by diag::Sink; absent for what the language defines.
  std::optional<Span> definition{};
  const ast::Clause* clause = nullptr;            // that defines it
  const ast::FunctionClause* function = nullptr;  // it, or the one it belongs to
  const ast::Expr* value = nullptr;               // of a let, local, dimension or parameter
  WordKind word = WordKind::clause;               // for Meaning::word
};

struct Use {
  Span span;
  std::size_t symbol = 0;  // in Index::symbols
};

class Index {
 public:
  Index() = default;
  // `spec` may lack the parts with syntax errors. Both must outlive the index.
  Index(const ast::Spec& spec, const sema::Library& library);

  const std::vector<Symbol>& symbols() const { return symbols_; }
  const std::vector<Use>& uses() const { return uses_; }  // in text order, definitions too

  // The name at this offset, or that ends there.
  const Use* at(std::uint32_t offset) const;
  const Symbol& symbol(const Use& use) const { return symbols_[use.symbol]; }
  std::vector<Span> uses_of(std::size_t symbol) const;

 private:
  friend class IndexedNames;
  friend class Indexer;
  std::vector<Symbol> symbols_;
  std::vector<Use> uses_;
};

}  // namespace attn::tools::lsp
