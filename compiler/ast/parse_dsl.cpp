// The DSL parser: ANTLR's tree of a text, and what is skipped after an error. syntax.cpp writes the
// error messages, build_dsl.cpp the AST.
#include <antlr4-runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "AttnSpecLexer.h"
#include "AttnSpecParser.h"
#include "compiler/ast/build_dsl.h"
#include "compiler/ast/comments.h"
#include "compiler/ast/parse.h"
#include "compiler/ast/syntax.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using antlr4::ParserRuleContext;
using antlr4::tree::ParseTree;
using diag::Code;

constexpr std::size_t kMaxTokens = 50'000;  // a token costs the parser a few kilobytes

// Replaces each non-ASCII byte by one character, so that lexer positions are byte offsets. A byte
// order mark becomes spaces.
std::string as_ascii(std::string_view text) {
  constexpr char kSubstitute = '\x1a';
  std::string out(text);
  if (out.starts_with("\xEF\xBB\xBF")) out.replace(0, 3, "   ");
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, kSubstitute);
  return out;
}

Tokens plain_tokens(const std::vector<antlr4::Token*>& all, const antlr4::dfa::Vocabulary& names) {
  Tokens tokens;
  for (std::size_t type = 0; type <= names.getMaxTokenType(); ++type) {
    tokens.kinds.push_back(names.getDisplayName(type));
  }
  tokens.kinds.emplace_back("EOF");
  std::size_t line = 0;
  for (const antlr4::Token* token : all) {
    const bool end = token->getType() == antlr4::Token::EOF;
    const std::size_t type = end ? tokens.kinds.size() - 1 : token->getType();
    tokens.all.push_back({type, span_of(token), token->getLine() != line});
    line = token->getLine();
  }
  return tokens;
}

// Reports errors through syntax.h and resumes at the next clause.
class Strategy : public antlr4::DefaultErrorStrategy {
 public:
  Strategy(const Tokens& tokens, diag::Sink& sink) : tokens_(tokens), sink_(sink) {}

  void sync(antlr4::Parser* parser) override {
    const std::size_t at = parser->getCurrentToken()->getTokenIndex();
    if (at != synced_at_) {  // the first decision at a token has all expected tokens
      synced_at_ = at;
      synced_state_ = parser->getState();
      synced_context_ = parser->getContext();
    }
    if (in_body(parser->getContext())) skip_to_clause(parser);
  }

  antlr4::Token* recoverInline(antlr4::Parser* parser) override {
    throw antlr4::InputMismatchException(parser);
  }

  void reportError(antlr4::Parser* parser, const antlr4::RecognitionException& e) override {
    if (inErrorRecoveryMode(parser)) return;
    beginErrorCondition(parser);
    const std::size_t at = e.getOffendingToken()->getTokenIndex();
    const antlr4::atn::ATN& atn = parser->getATN();
    report(at, at == synced_at_ ? atn.getExpectedTokens(synced_state_, synced_context_)
                                : atn.getExpectedTokens(parser->getState(), parser->getContext()));
  }

  void recover(antlr4::Parser* parser, std::exception_ptr) override {
    const antlr4::RuleContext* context = parser->getContext();
    if (context->getRuleIndex() == Grammar::RuleFile) return;
    if (!inside(context, Grammar::RuleClause) && !inside(context, Grammar::RuleItem)) {
      return skip(parser, {"'{'"});
    }
    if (in_function(parser->getContext())) return recover_function(parser);
    skip(parser, {"';'", "'}'"});
    const bool whole_clause = dynamic_cast<Grammar::ClauseContext*>(context->parent) != nullptr ||
                              dynamic_cast<Grammar::ItemContext*>(context->parent) != nullptr;
    if (whole_clause && kind(parser) == "';'") {
      parser->consume();
      endErrorCondition(parser);  // the next clause may have its own error
    }
  }

 private:
  static bool inside(const antlr4::RuleContext* context, std::size_t rule) {
    for (const antlr4::tree::ParseTree* node = context; node; node = node->parent) {
      if (static_cast<const antlr4::RuleContext*>(node)->getRuleIndex() == rule) return true;
    }
    return false;
  }

  static bool in_body(ParserRuleContext* context) {
    if (context->getRuleIndex() != Grammar::RuleAttention || context->children.empty()) {
      return false;
    }
    ParseTree* last = context->children.back();
    return dynamic_cast<Grammar::ClauseContext*>(last) != nullptr || last->getText() == "{";
  }

  static bool in_function(ParserRuleContext* context) {
    return inside(context, Grammar::RuleFunctionClause);
  }

  // Whether the parser is past the opening brace of a function.
  static bool in_function_body(ParserRuleContext* context) {
    for (ParseTree* node = context; node; node = node->parent) {
      auto* rule = dynamic_cast<ParserRuleContext*>(node);
      if (rule->getRuleIndex() != Grammar::RuleFunctionClause) continue;
      return std::ranges::any_of(rule->children,
                                 [](ParseTree* child) { return child->getText() == "{"; });
    }
    return false;
  }

  // Resumes after the function; after an error in its header, skips its body too.
  void recover_function(antlr4::Parser* parser) {
    const bool whole = parser->getContext()->getRuleIndex() == Grammar::RuleFunctionClause;
    bool body = in_function_body(parser->getContext());
    if (!body) {
      skip(parser, {"'{'", "';'", "'}'"});
      if (!whole) return;
      body = kind(parser) == "'{'";
      if (body) parser->consume();
    }
    if (body) skip_body(parser);
    if (!whole || kind(parser) != (body ? "'}'" : "';'")) return;
    parser->consume();
    endErrorCondition(parser);
  }

  // A line of a body may begin with a clause keyword: `score = score / 50`.
  void skip_body(antlr4::Parser* parser) const {
    while (kind(parser) != "EOF" && kind(parser) != "'}'") {
      const std::size_t at = parser->getCurrentToken()->getTokenIndex();
      if (starts_clause(tokens_, at) && tokens_.kind(at + 1) != "'='") return;
      parser->consume();
    }
  }

  const std::string& kind(antlr4::Parser* parser) const {
    return tokens_.kind(parser->getCurrentToken()->getTokenIndex());
  }

  void skip(antlr4::Parser* parser, std::initializer_list<std::string_view> stops) const {
    while (kind(parser) != "EOF" && std::ranges::find(stops, kind(parser)) == stops.end() &&
           !starts_clause(tokens_, parser->getCurrentToken()->getTokenIndex())) {
      parser->consume();
    }
  }

  bool may_start_clause(antlr4::Parser* parser) const {
    const std::string& k = kind(parser);
    const bool word = k == "IDENT" || (k.size() > 3 && k[1] >= 'a' && k[1] <= 'z');
    return (word && k != "'attention'" && k != "'in'") || k == "'}'" || k == "EOF";
  }

  void skip_to_clause(antlr4::Parser* parser) {
    while (!may_start_clause(parser)) {
      if (!inErrorRecoveryMode(parser)) {
        beginErrorCondition(parser);
        report(parser->getCurrentToken()->getTokenIndex(), {"CLAUSE", "'}'"});
      }
      parser->consume();
      skip(parser, {"';'", "'}'"});
      if (kind(parser) == "';'") parser->consume();
      endErrorCondition(parser);
    }
  }

  void report(std::size_t at, const antlr4::misc::IntervalSet& expected) {
    std::vector<std::string> kinds;
    for (const ssize_t type : expected.toList()) {
      kinds.push_back(type < 0 ? "EOF" : tokens_.kinds[static_cast<std::size_t>(type)]);
    }
    report(at, kinds);
  }

  void report(std::size_t at, const std::vector<std::string>& expected) {
    if (count_++ < kMaxSyntaxErrors) report_syntax_error(tokens_, at, expected, sink_);
  }

  const Tokens& tokens_;
  diag::Sink& sink_;
  std::size_t count_ = 0;
  std::size_t synced_at_ = SIZE_MAX;
  std::size_t synced_state_ = 0;
  antlr4::RuleContext* synced_context_ = nullptr;
};

using OwnedTokens = std::vector<std::unique_ptr<antlr4::Token>>;

// A string at the beginning of a body is a docstring, hence a comment.
bool is_comment_token(const antlr4::Token& token, const OwnedTokens& before) {
  if (token.getType() == Grammar::COMMENT) return true;
  const bool is_string =
      token.getType() == Grammar::DOCSTRING || token.getType() == Grammar::STRING;
  return is_string && !before.empty() && before.back()->getText() == "{";
}

// Adds a token; of a RANGE_FROM, "1..", its two parts.
void add(OwnedTokens& tokens, std::unique_ptr<antlr4::Token> token) {
  if (token->getType() != Grammar::RANGE_FROM) return tokens.push_back(std::move(token));
  const auto part = [&](std::size_t type, std::size_t begin, std::size_t end) {
    auto made = std::make_unique<antlr4::CommonToken>(token.get());
    made->setType(type);
    made->setStartIndex(begin);
    made->setStopIndex(end);
    tokens.push_back(std::move(made));
  };
  const std::size_t range = token->getStopIndex() - 1;
  part(Grammar::NUMBER, token->getStartIndex(), range - 1);
  part(Grammar::RANGE, range, token->getStopIndex());
}

// Returns all tokens including EOF, or none if there are too many. Comments are returned
// separately.
OwnedTokens tokenize(antlr4::Lexer& lexer, std::vector<Span>& comments, diag::Sink& sink) {
  // ANTLR 4.9 counts calls in a variable that all lexers share, without a lock.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  OwnedTokens tokens;
  do {
    auto token = lexer.nextToken();
    while (is_comment_token(*token, tokens)) {
      comments.push_back(span_of(token.get()));
      token = lexer.nextToken();
    }
    add(tokens, std::move(token));
    if (tokens.size() > kMaxTokens) {
      sink.report(Code::too_large, span_of(tokens.back().get()),
                  fmt::format("the file has more than {} tokens", kMaxTokens));
      return {};
    }
  } while (tokens.back()->getType() != antlr4::Token::EOF);
  return tokens;
}

}  // namespace

std::optional<Spec> parse_dsl(const support::Source& source, diag::Sink& sink,
                              std::optional<Spec>* incomplete) {
  if (!is_readable(source, sink)) return std::nullopt;
  antlr4::ANTLRInputStream input(as_ascii(source.text()));
  attn_grammar::AttnSpecLexer lexer(&input);
  std::vector<Span> comments;
  auto owned = tokenize(lexer, comments, sink);
  if (owned.empty()) return std::nullopt;
  antlr4::ListTokenSource list(std::move(owned));
  antlr4::CommonTokenStream stream(&list);
  stream.fill();
  const Tokens tokens = plain_tokens(stream.getTokens(), lexer.getVocabulary());
  if (!is_utf8(tokens, sink) || !brackets_are_bounded(tokens, sink)) return std::nullopt;
  Grammar parser(&stream);
  parser.removeErrorListeners();
  auto strategy = std::make_shared<Strategy>(tokens, sink);
  parser.setErrorHandler(strategy);
  Grammar::FileContext* file = parser.file();
  if (sink.has_errors()) {
    diag::Sink unheard(source);
    if (incomplete) *incomplete = incomplete_spec_of(file, unheard);
    return std::nullopt;
  }
  std::optional<Spec> spec = spec_of(file, sink);
  if (spec) attach_comments(source, comments, end_of_header(file), *spec);
  return spec;
}

Lexed lex(const support::Source& source) {
  antlr4::ANTLRInputStream input(as_ascii(source.text()));
  attn_grammar::AttnSpecLexer lexer(&input);
  Lexed lexed;
  diag::Sink unheard(source);
  const auto owned = tokenize(lexer, lexed.comments, unheard);
  std::vector<antlr4::Token*> all;
  for (const auto& token : owned) all.push_back(token.get());
  lexed.tokens = plain_tokens(all, lexer.getVocabulary());
  return lexed;
}

}  // namespace attn::ast
