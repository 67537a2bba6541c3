// What is known of one version of a document's text.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/analyze.h"
#include "compiler/sema/environment.h"
#include "compiler/support/source.h"
#include "tools/lsp/index.h"

namespace attn::tools::lsp {

// Syntax and semantics, up to a limit of work: what takes a few milliseconds. Immutable.
struct Analysis {
  std::shared_ptr<const support::Source> source;
  std::unique_ptr<diag::Sink> found;  // as `attnc check`, without what depends on sizes
  // With syntax errors, the parts without any, if they have an opening line.
  std::optional<ast::Spec> spec;
  bool is_complete = false;  // whether that is all of the text
  sema::Library library;
  Index index;
  // The attention of a spec without errors, within the limit (else found->is_stopped()), that is no
  // library:
  std::optional<ir::Attention> attention;
  sema::Spans spans;  // of its expressions
  // Unless it is a library.
  std::optional<sema::Environment> environment;

  // The file and the span in it of a span of the index.
  diag::Location locate(Span span) const { return files_->locate(span); }
  // The number that a constant has, if it is known.
  std::optional<ast::Number> value_of(const ast::Expr& expr) const;
  std::optional<ast::Number> size_of(std::string_view dimension) const;
  // "real", "int" or "bool"; "" if it is not known.
  std::string_view type_of(Span expression) const;

 private:
  friend std::shared_ptr<const Analysis> analyze(support::Source source);
  void read_names();
  void read_types();

  std::unique_ptr<diag::Sink> unheard_;        // what is said of an incomplete text
  const diag::Sink* files_ = nullptr;          // that numbers the spans
  std::map<Span, ir::Type, SpanOrder> types_;  // of expressions
};

std::shared_ptr<const Analysis> analyze(support::Source source);

// All that `attnc check` reports, the bounded work of up to some seconds.
std::unique_ptr<diag::Sink> check_all(const Analysis& analysis);

// What masks hide, as a share of the scores and as a picture. Tensors without a default have values
// as reference/lifelike.h makes them.
struct MaskFacts {
  struct Share {
    Span clause;
    std::string text;  // "37.5 % of scores"
  };
  std::vector<Share> clauses;  // of each mask
  std::string total;           // of all masks and lengths; "" if unknown
  std::string picture;         // of the first batch and head
  std::string reason;          // why there is no picture
};
MaskFacts mask_facts(const Analysis& analysis);

}  // namespace attn::tools::lsp
