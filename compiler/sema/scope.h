// The names a spec defines, and expressions checked against them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"
#include "compiler/sema/operations.h"

namespace attn::sema {

struct Symbol {
  enum class Kind {
    parameter,
    tensor,
    param,
    let,       // value set once its clause is reached
    poisoned,  // an error was reported, or will be, where it is defined
  };
  Kind kind = Kind::poisoned;
  support::Span span{};  // the defining name
  DType dtype = DType::f32;
  std::optional<Value> value{};  // let
  bool used = false;
};

// Where an expression stands, and what has a value there.
struct Site {
  std::string_view what;  // "a mask"
  std::uint8_t allowed;   // Uses
};

class Scope {
 public:
  // The references must outlive the scope.
  Scope(Environment& environment, ir::Attention& attention, diag::Sink& sink);

  // Adds a name; reports one that is taken or reserved (run-time names only for `at_run_time`).
  void declare(const ast::Name& name, Symbol symbol, bool at_run_time);
  void poison(const std::string& name);  // unless it is defined
  void define_let(const ast::Name& name, const std::optional<Value>& value);

  // The value of an expression; nothing after reporting, or when part of it is poisoned.
  std::optional<Value> check(const ast::Expr& expr, const Site& site);
  // As `type`: integers and booleans become real; otherwise the type must match, or `help` says
  // what to do.
  std::optional<Value> check_as(const ast::Expr& expr, const Site& site, ir::Type type,
                                std::string_view help);

  // `score` from here on.
  void set_score(const Value& score) { score_ = score; }
  const Value& score() const { return score_; }

  void warn_unused() const;

 private:
  std::optional<Value> bare(const ast::Expr& expr, const Site& site);
  std::optional<Value> number(const ast::Expr& expr);
  std::optional<Value> name(const ast::Expr& expr, const Site& site);
  std::optional<Value> bound(const ast::Expr& expr);
  std::optional<Value> dimension(const ast::Expr& expr);
  std::optional<Value> symbol(const ast::Expr& expr, Symbol& symbol);
  std::optional<Value> constant(const ast::Expr& expr, const Known& known);
  std::optional<Value> index(const ast::Expr& expr, const Site& site);
  std::optional<Value> load(const ast::Expr& expr, const Symbol& tensor,
                            const std::vector<std::optional<Value>>& indexes);
  bool index_fits(const ast::Expr& expr, const Value& index, ir::ExprId extent);
  std::optional<Value> operation(const ast::Expr& expr, const Site& site);
  std::optional<Value> query_index(ir::SourcePos pos);
  bool available(const ast::Expr& expr, const Value& value, const Site& site);
  bool bounded(const ast::Expr& expr, const Value& value);
  void unknown(const ast::Expr& expr);
  void unknown_function(const ast::Expr& expr);
  void warn_of_bits(const ast::Expr& expr);
  diag::Diagnostic& report(diag::Code code, support::Span span, std::string message);

  Environment& environment_;
  ir::Attention& attention_;
  diag::Sink& sink_;
  Operations operations_;
  Value score_;
  std::map<std::string, Symbol, std::less<>> symbols_;
};

}  // namespace attn::sema
