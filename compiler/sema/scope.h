// The names that a spec defines, and the checks of its expressions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"
#include "compiler/sema/library.h"
#include "compiler/sema/operations.h"

namespace attn::sema {

struct Symbol {
  enum class Kind {
    parameter,
    tensor,
    param,
    let,       // value set once its clause is reached
    function,  // of the spec's own file
    branch,    // its element of o, in `combine`
    poisoned,  // an error was reported, or will be, where it is defined
  };
  Kind kind = Kind::poisoned;
  support::Span span{};  // the defining name
  DType dtype = DType::f32;
  std::optional<Value> value{};  // let
  const ast::FunctionClause* function = nullptr;
  const ast::TensorClause* tensor = nullptr;  // null for what other clauses declare
  bool inside = false;  // a function inside the attention, which can use its names
  bool used = false;
  bool sums = false;  // of a let: along keys, so that it becomes a tensor
};

// The context of an expression, and what it may use there.
struct Site {
  std::string_view what;       // "a mask"
  std::uint16_t allowed;       // Uses
  std::string_view help = "";  // help for a name that cannot be used there
};

inline constexpr Site kDefaultSite{
    "the default of a tensor", kConstants,
    "a default may use only numbers, dimensions, spec parameters and the "
    "element's indexes `i0`, `i1`, ..."};

class Scope {
 public:
  // The references must outlive the scope.
  Scope(Environment& environment, const Library& library, ir::Attention& attention,
        diag::Sink& sink);

  // The clause whose expressions are checked next, and the attention's first byte: fixes may add
  // lines above them.
  void begin_clause(support::Span clause) { clause_ = clause; }
  void set_attention_begin(std::uint32_t offset) { attention_begin_ = offset; }

  // Stops without an error after as many visited expressions, if a limit is given.
  void stop_after(std::optional<std::uint64_t> most_work) { most_work_ = most_work; }
  bool is_stopped() const { return is_stopped_; }

  // Records the spans of checked expressions (analyze.h) in `spans`.
  void record(std::map<ir::ExprId, std::vector<support::Span>>& spans) { spans_ = &spans; }

  // Adds a name; reports one that is taken or reserved (run-time names only for `at_run_time`).
  void declare(const ast::Name& name, Symbol symbol, bool at_run_time);
  void poison(const std::string& name);  // unless it is defined
  void define_let(const ast::Name& name, const std::optional<Value>& value);
  // sums.cpp: makes a let a tensor, and adds it to the attention; without a value it is poisoned.
  void define_sum(const ast::Name& name, std::optional<ir::KeySum> sum);

  // The value of an expression; nullopt after an error in it or in a definition that it uses.
  std::optional<Value> check(const ast::Expr& expr, const Site& site);
  // The value as `type`: integers become real, otherwise the type must match. `help` is for a
  // mismatch.
  std::optional<Value> check_as(const ast::Expr& expr, const Site& site, ir::Type type,
                                std::string_view help);

  // Whether the value has the type; if not, reports it.
  bool has_type(const ast::Expr& expr, const Value& value, ir::Type type, const Site& site,
                std::string_view help = "");

  // The default of a tensor with these extents: an expression of the element's indexes `i0`, `i1`,
  // ..., or (nested) lists of all elements; of a replaced default, lists of any length.
  std::optional<Value> check_default(const ast::Expr& expr, const Site& site,
                                     std::span<const ir::ExprId> extents, bool is_replaced);

  // Reports errors in the functions of the spec and of its imports, called or not.
  void check_functions();

  // From here on, `x[..]` is an element of a row of this tensor, "q" or "k", after the prologue so
  // far, and `sum(..)` of one value a sum over the row, which is added to its sums; "": no more.
  void begin_prologue(std::string_view tensor, ir::Prologue* prologue, bool is_first = true) {
    row_of_ = tensor;
    prologue_ = prologue;
    is_first_prologue_ = is_first;
  }

  // gather.cpp: whether it is a tensor of the spec (or was reported), which counts as read.
  bool use_tensor(const ast::Name& name);

  // Sets the value of `score` for the expressions that follow.
  void set_score(const Value& score) { score_ = score; }
  const Value& score() const { return score_; }
  // The same of `o`, and its product with a value.
  void set_output(const Value& output) { output_ = output; }
  const Value& output() const { return output_; }
  Value gated(const Value& by) { return operations_.build(ir::Op::mul_, {output_, by}); }

  // Whether the spec, or what it imports, defines a function with this name.
  bool has_function(const std::string& name) const;

  // Reports the names that are read neither here nor elsewhere, or `collects` those read here. A
  // branch that is not read is an error: it would be computed for nothing.
  void warn_unused(std::set<std::string, std::less<>>& elsewhere, bool collects) const;

 private:
  // A local name: a function's parameter or let, the variable of a reduction, or an element's
  // index.
  struct Local {
    std::string name;
    enum class Kind { value, tensor, poisoned } kind = Kind::poisoned;
    Value value{};
    std::string tensor{};  // the tensor that it means
  };
  // A function that is being expanded. It can use the locals from `locals` on.
  struct Frame {
    const ast::FunctionClause* function;
    enum class Sees { spec, file, library } sees;
    std::size_t locals;
  };
  struct Callee {
    const ast::FunctionClause* function = nullptr;
    Frame::Sees sees = Frame::Sees::library;
  };

  // calls.cpp
  std::optional<Value> call(const ast::Expr& expr, const Callee& callee, const Site& site);
  std::optional<Value> inlined(const Callee& callee, std::vector<Local> arguments,
                               const Site& site);
  bool can_call(const ast::Expr& expr, const ast::FunctionClause& function);
  Local argument(const ast::Name& parameter, const ast::Expr& expr, const Site& site);
  std::optional<Callee> find_function(const std::string& name);
  const Local* find_local(const std::string& name) const;
  bool sees_spec() const { return frames_.empty() || frames_.back().sees == Frame::Sees::spec; }
  std::optional<Value> local_value(const ast::Expr& expr, const Local& local);
  std::optional<Value> reduction(const ast::Expr& expr, const Site& site);
  std::optional<std::int64_t> reduction_bound(const ast::Expr& expr, const Site& site);
  std::vector<std::string_view> names_of(bool functions) const;
  bool within_work(const ast::Expr& expr);

  // defaults.cpp
  std::optional<Value> element(const ast::Expr& expr, const Site& site,
                               std::span<const ir::ExprId> extents, std::size_t axis);
  std::optional<Value> element_of(const ast::Expr& list, std::vector<Value> elements,
                                  std::size_t axis);
  bool list_fits(const ast::Expr& list, std::span<const ir::ExprId> extents, std::size_t axis);

  // unknown.cpp
  void unknown(const ast::Expr& expr);
  void not_a_value(const ast::Expr& expr, const ast::FunctionClause& function);
  void unknown_function(const ast::Expr& expr);
  static bool has_usual_arguments(const ast::FunctionClause& function);
  std::string call_of(const ast::FunctionClause& function) const;
  void suggest_import(const ast::Expr& expr, diag::Diagnostic& diagnostic) const;
  std::string example_of(const std::string& tensor, const Symbol& symbol) const;
  void suggest_tensor(const ast::Expr& index, diag::Diagnostic& diagnostic) const;
  std::string joined_masks(const ast::Expr& expr);
  bool is_function_name(const ast::Expr& expr);
  bool is_function_here(const ast::Expr& expr) const;
  bool is_condition(const ast::Expr& expr) const;  // where a boolean must be

  // ranks.cpp
  void wrong_rank(const ast::Expr& expr, const ir::CapturedTensor& tensor);
  std::string with_rank(const ast::Expr& expr, const ir::CapturedTensor& tensor,
                        const Symbol& symbol) const;

  // prologue.cpp
  bool is_element(const ast::Expr& expr) const;
  // Whether an index of `x` in a prologue would read what the spec calls so; if so, reports it.
  bool is_row_hidden(const ast::Expr& expr);
  std::optional<Value> element_of_row(const ast::Expr& expr, const Site& site);
  std::optional<Value> row_sum(const ast::Expr& expr, const Site& site);

  // The tensor that `expr`, a name or an index expression, means.
  std::optional<std::string> tensor_named(const ast::Expr& expr);

  void record(const ast::Expr& expr, ir::ExprId id);
  std::optional<Value> bare(const ast::Expr& expr, const Site& site);
  std::optional<Value> number(const ast::Expr& expr);
  std::optional<Value> name(const ast::Expr& expr, const Site& site);
  std::optional<Value> bound(const ast::Expr& expr);
  std::optional<Value> dimension(const ast::Expr& expr);
  std::optional<Value> symbol(const ast::Expr& expr, Symbol& symbol);
  Value branch(const ast::Expr& expr);  // branches.cpp
  std::optional<Value> constant(const ast::Expr& expr, const Known& known);
  std::optional<Value> wide_literal(const ast::Expr& expr);
  std::optional<Value> index(const ast::Expr& expr, const Site& site);
  std::optional<Value> load(const ast::Expr& expr, const ir::CapturedTensor& tensor,
                            const std::vector<std::optional<Value>>& indexes);
  std::optional<Value> load_sum(const ast::Expr& expr, const ir::KeySum& sum,
                                const std::vector<std::optional<Value>>& indexes);
  bool index_fits(const ast::Expr& expr, const Value& index, ir::ExprId extent);
  void no_gradient(support::Span span, std::string what);
  // Adds the fix that replaces the expression. A spec in JSON is a tree, which has no such text.
  void rewrite(const ast::Expr& expr, std::string_view text, diag::Diagnostic& diagnostic) const;
  bool is_dsl(const ast::Expr& expr) const;
  std::optional<Value> operation(const ast::Expr& expr, const Site& site);
  std::optional<Value> query_index(ir::SourcePos pos);
  Value size(ir::Dim dim, ir::SourcePos pos);
  Value length(ir::Dim dim, bool given, std::string_view tensor, ir::SourcePos pos);
  bool available(const ast::Expr& expr, const Value& value, const Site& site);
  bool bounded(const ast::Expr& expr, const Value& value);
  bool bounded(const ast::Expr& expr, std::uint64_t size);
  void warn_of_bits(const ast::Expr& expr);
  diag::Diagnostic& report(diag::Code code, support::Span span, std::string message);

  Environment& environment_;
  const Library& library_;
  ir::Attention& attention_;
  diag::Sink& sink_;
  Operations operations_;
  Value score_;
  Value output_;
  std::map<std::string, Symbol, std::less<>> symbols_;
  std::vector<Local> locals_;
  std::vector<Frame> frames_;
  std::map<ir::ExprId, std::vector<support::Span>>* spans_ = nullptr;
  const ast::Expr* root_ = nullptr;  // the last expression that check_as was given
  bool wants_condition_ = false;     // whether it must be a boolean
  support::Span clause_{};
  std::uint32_t attention_begin_ = 0;
  std::uint64_t work_ = 0;  // expressions visited, those of functions at every call
  std::optional<std::uint64_t> most_work_;
  std::string row_of_;                // of a prologue that is checked
  ir::Prologue* prologue_ = nullptr;  // so far
  bool is_first_prologue_ = true;     // so that rows are those of the tensor
  bool default_is_replaced_ = false;
  bool is_stopped_ = false;
};

}  // namespace attn::sema
