// Fuzzes the text of specs, as DSL and as JSON: parsing gives a tree that round-trips, or
// diagnostics.
#include "compiler/ast/comments.h"
#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/ast/syntax.h"
#include "compiler/sema/other_clauses.h"
#include "tests/fuzz/spec_generator.h"
#include "tests/fuzz/target.h"

namespace attn::fuzz {
namespace {

void try_print(const ast::Spec& spec, const support::Source& source, bool as_json) {
  const std::string printed = as_json ? ast::to_json(spec) : ast::to_dsl(spec);
  const support::Source again(as_json ? "x.json" : "x.attn", printed);
  diag::Sink sink(again);
  const auto read = ast::parse(again, sink);
  // JSON allows deeper nesting than text.
  if (!read && source.is_json() != as_json) return;
  require(read.has_value());
  require((as_json ? ast::to_json(*read) : ast::to_dsl(*read)) == printed);
}

void try_parse(const std::string& text, const char* name) {
  const support::Source source(name, text);
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  require(spec.has_value() != sink.has_errors());
  for (const support::Span comment : ast::lex(source).comments) require(comment.end <= text.size());
  if (!spec) {
    // Clauses without errors are complete, so they can be printed.
    if (const auto incomplete = ast::parse_incomplete(source)) (void)ast::to_dsl(*incomplete);
    return require(!diag::to_text(sink).empty());
  }
  if (!sema::has_only_known_clauses(*spec, sink) || ast::first_not_utf8(text)) return;
  try_print(*spec, source, false);
  try_print(*spec, source, true);
}

}  // namespace

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {"attention ",
                                               "fn ",
                                               "import ",
                                               "\"masks.attn\"",
                                               "dims ",
                                               "tensor ",
                                               "learn ",
                                               "score ",
                                               "mask ",
                                               "let ",
                                               "sink ",
                                               "dropout ",
                                               "return",
                                               "{",
                                               "}",
                                               "(",
                                               ")",
                                               "[",
                                               "]",
                                               ";",
                                               ",",
                                               ":",
                                               "..",
                                               "in",
                                               "=",
                                               "==",
                                               "&&",
                                               "||",
                                               "!",
                                               "~",
                                               "&",
                                               "|",
                                               "^",
                                               "<<",
                                               ">>",
                                               "**",
                                               "//",
                                               "%",
                                               "#",
                                               "\n",
                                               "torch.",
                                               "inf",
                                               "0x",
                                               "1e400",
                                               "1.",
                                               ".5",
                                               "9999999999999999999",
                                               "\"",
                                               "null",
                                               "true",
                                               "\xC3\xA9",
                                               "\xFF"};
  return all;
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (unsigned seed = 1; seed < 12; ++seed) {
    std::vector<std::uint8_t> decisions;
    for (unsigned i = 0; i < 64; ++i) {
      decisions.push_back(static_cast<std::uint8_t>(seed * 37 + i * i * 11 + seed * i));
    }
    all.push_back(spec_of(decisions));
    const support::Source source("x.attn", all.back());
    diag::Sink sink(source);
    if (const auto spec = ast::parse(source, sink)) all.push_back(ast::to_json(*spec));
  }
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  attn::fuzz::try_parse(text, text.starts_with('{') ? "x.json" : "x.attn");
  return 0;
}
