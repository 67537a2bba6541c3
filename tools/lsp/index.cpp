#include "tools/lsp/index.h"

#include <algorithm>
#include <map>

#include "compiler/ast/walk.h"
#include "compiler/sema/names.h"

namespace attn::tools::lsp {

using ast::Expr;
using ast::ExprKind;

// What names mean: those of the spec, of libraries, of dimensions, and locals.
class IndexedNames {
 public:
  explicit IndexedNames(Index& index) : index_(index) {}

 protected:
  using Names = std::map<std::string, std::size_t, std::less<>>;

  std::size_t add(Symbol symbol) {
    index_.symbols_.push_back(std::move(symbol));
    return index_.symbols_.size() - 1;
  }

  void use(Span span, std::size_t symbol) {
    if (span.end > span.begin) index_.uses_.push_back({span, symbol});
  }

  // Adds a symbol and its definition. A second definition of a name is a use of the first.
  std::size_t define(Names& names, const ast::Name& name, Symbol symbol) {
    const auto found = names.find(name.text);
    const std::size_t number = found != names.end() ? found->second : add(std::move(symbol));
    names.emplace(name.text, number);
    use(name.span, number);
    return number;
  }

  static Symbol symbol_of(Meaning meaning, const ast::Name& name, const ast::Clause* clause) {
    return {.meaning = meaning, .name = name.text, .definition = name.span, .clause = clause};
  }

  void declare_functions(const std::vector<ast::Clause>& clauses, Names& names) {
    for (const ast::Clause& clause : clauses) {
      const auto* function = std::get_if<ast::FunctionClause>(&clause.body);
      if (!function) continue;
      Symbol symbol = symbol_of(Meaning::function, function->name, &clause);
      symbol.function = function;
      define(names, function->name, std::move(symbol));
    }
  }

  void declare(const ast::Spec& spec) {
    if (!spec.is_library) {
      use(spec.name.span, add(symbol_of(Meaning::attention, spec.name, nullptr)));
    }
    declare_functions(spec.preamble, own_functions_);
    declare_functions(spec.clauses, own_functions_);
    for (const ast::SpecParameter& parameter : spec.parameters) {
      Symbol symbol = symbol_of(Meaning::parameter, parameter.name, nullptr);
      if (parameter.value) symbol.value = &*parameter.value;
      define(names_, parameter.name, std::move(symbol));
    }
    for (const ast::Clause& clause : spec.clauses) declare(clause);
  }

  void declare(const ast::Clause& clause) {
    if (const auto* dims = std::get_if<ast::DimsClause>(&clause.body)) {
      for (const ast::DimEntry& entry : dims->entries) {
        Symbol symbol = symbol_of(Meaning::dimension, entry.name, &clause);
        if (entry.size) symbol.value = &*entry.size;
        define(dimensions_, entry.name, std::move(symbol));
      }
    } else if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      define(names_, tensor->name, symbol_of(Meaning::tensor, tensor->name, &clause));
    } else if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) {
      define(names_, param->name, symbol_of(Meaning::param, param->name, &clause));
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      Symbol symbol = symbol_of(Meaning::let, let->name, &clause);
      symbol.value = &let->value;
      define(names_, let->name, std::move(symbol));
    } else if (const auto* branch = std::get_if<ast::BranchClause>(&clause.body)) {
      define(names_, branch->name, symbol_of(Meaning::branch, branch->name, &clause));
    }
  }

  void word(WordKind kind, const ast::Name& name) {
    const auto [found, added] = words_.try_emplace({kind, name.text}, 0);
    if (added) found->second = add({.name = name.text, .word = kind});
    use(name.span, found->second);
  }

  void define_local(Meaning meaning, const ast::Name& name, const ast::FunctionClause* function,
                    const Expr* value) {
    Symbol symbol = symbol_of(meaning, name, nullptr);
    symbol.function = function;
    symbol.value = value;
    const std::size_t number = add(std::move(symbol));
    use(name.span, number);
    locals_.emplace_back(name.text, number);
  }

  void call(const Expr& expr) {
    const Names* tables[] = {&own_functions_, &library_functions_};
    for (const Names* table : tables) {
      if (table == &own_functions_ && !sees_own_) continue;
      const auto found = table->find(expr.text);
      if (found != table->end()) return use(expr.head, found->second);
    }
    if (word_named(WordKind::function, expr.text)) {
      word(WordKind::function, {expr.text, expr.head});
    }
  }

  void name(const Expr& expr) {
    // float("-inf") is the name `inf`.
    if (expr.kind == ExprKind::name && expr.head.end - expr.head.begin != expr.text.size()) return;
    for (auto local = locals_.rbegin(); local != locals_.rend(); ++local) {
      if (local->first == expr.text) return use(expr.head, local->second);
    }
    const auto found = sees_own_ && sees_spec_ ? names_.find(expr.text) : names_.end();
    if (found != names_.end()) return use(expr.head, found->second);
    if (sema::is_dimension_name(expr.text)) return dimension(expr);
    const auto function = own_functions_.find(expr.text);
    if (sees_own_ && function != own_functions_.end()) return use(expr.head, function->second);
    for (const WordKind kind : {WordKind::value, WordKind::tensor}) {
      if (word_named(kind, expr.text)) return word(kind, {expr.text, expr.head});
    }
  }

  // The entry `D` defines Dqk and Dv too.
  void dimension(const Expr& expr) {
    auto found = sees_own_ ? dimensions_.find(expr.text) : dimensions_.end();
    const bool is_part = expr.text == "Dqk" || expr.text == "Dv";
    if (found == dimensions_.end() && is_part && sees_own_) found = dimensions_.find("D");
    if (found != dimensions_.end()) return use(expr.head, found->second);
    word(WordKind::dimension, {expr.text, expr.head});
  }

  Index& index_;
  Names own_functions_, library_functions_, names_, dimensions_;
  std::map<std::pair<WordKind, std::string>, std::size_t> words_;
  std::vector<std::pair<std::string, std::size_t>> locals_;
  bool sees_own_ = true;    // not in an imported file
  bool sees_spec_ = false;  // not in a function above the attention
};

class Indexer : private IndexedNames {
 public:
  Indexer(Index& index, const sema::Library& library) : IndexedNames(index), library_(library) {}

  void run(const ast::Spec& spec) {
    for (const auto& file : library_.files) declare_functions(file->preamble, library_functions_);
    declare(spec);
    for (const auto& file : library_.files) {
      sees_own_ = false;
      for (const ast::Clause& item : file->preamble) visit(item);
    }
    sees_own_ = true;
    for (const ast::Clause& item : spec.preamble) visit(item);
    sees_spec_ = true;
    if (!spec.is_library) {
      for (const ast::SpecParameter& parameter : spec.parameters) visit(parameter.value);
    }
    for (const ast::Clause& clause : spec.clauses) visit(clause);
    std::ranges::stable_sort(index_.uses_, {}, [](const Use& use) { return use.span.begin; });
  }

 private:
  void visit(const ast::Clause& clause) {
    word(WordKind::clause, clause.keyword);
    std::visit([this](const auto& body) { visit(body); }, clause.body);
  }

  void visit(const std::optional<Expr>& expr) {
    if (expr) visit(*expr);
  }
  void visit(const std::vector<Expr>& exprs) {
    for (const Expr& expr : exprs) visit(expr);
  }

  void visit(const ast::DimsClause& clause) {
    for (const ast::DimEntry& entry : clause.entries) {
      visit(entry.size);
      visit(entry.set);
    }
  }
  void visit(const ast::DtypeClause& clause) {
    word(WordKind::type, clause.dtype);
    for (const ast::DtypeEntry& entry : clause.entries) {
      word(WordKind::tensor, entry.tensor);
      word(WordKind::type, entry.dtype);
    }
  }
  void visit(const ast::LayoutClause& clause) {
    for (const ast::LayoutEntry& entry : clause.entries) {
      if (entry.tensor) word(WordKind::tensor, *entry.tensor);
      word(WordKind::layout, entry.kind);
      for (const ast::LayoutArgument& argument : entry.arguments) visit(argument.value);
    }
  }
  void visit(const ast::TensorClause& clause) {
    word(WordKind::type, clause.dtype);
    visit(clause.extents);
    for (const ast::Fact& fact : clause.facts) {
      word(WordKind::fact, fact.name);
      visit(fact.arguments);
    }
    visit(clause.fallback);
  }
  void visit(const ast::ParamClause& clause) { word(WordKind::type, clause.dtype); }
  void visit(const ast::LetClause& clause) { visit(clause.value); }
  void visit(const ast::ScaleClause& clause) { visit(clause.value); }
  void visit(const ast::ScoreClause& clause) { visit(clause.value); }
  void visit(const ast::MaskClause& clause) { visit(clause.value); }
  void visit(const ast::OutputsClause& clause) {
    for (const ast::Name& name : clause.outputs) word(WordKind::output, name);
  }
  void visit(const ast::AlignClause& clause) { word(WordKind::choice, clause.align); }
  void visit(const ast::SinkClause& clause) { visit(clause.value); }
  void visit(const ast::DropoutClause& clause) {
    visit(clause.probability);
    visit(clause.keep);
  }
  void visit(const ast::LengthsClause& clause) {
    for (const ast::LengthsEntry& entry : clause.entries) {
      word(WordKind::side, entry.side);
      visit(entry.fallback);
    }
  }
  void visit(const ast::GradClause& clause) {
    for (const ast::Name& name : clause.tensors) {
      const auto found = names_.find(name.text);
      if (found != names_.end()) {
        use(name.span, found->second);
      } else {
        word(WordKind::tensor, name);
      }
    }
  }
  void visit(const ast::DeterministicClause&) {}
  void visit(const ast::NormalizeClause& clause) { word(WordKind::choice, clause.by); }
  void visit(const ast::PrologueClause& clause) { visit(clause.value); }
  void visit(const ast::WeightClause& clause) { visit(clause.value); }
  void visit(const ast::EpilogueClause& clause) { visit(clause.value); }
  void visit(const ast::BranchClause& clause) {
    for (const ast::BranchInput& input : clause.inputs) {
      word(WordKind::tensor, input.tensor);
      const auto found = names_.find(input.by.text);
      if (found != names_.end()) use(input.by.span, found->second);
    }
  }
  void visit(const ast::ValuesClause& clause) {
    word(WordKind::tensor, clause.tensor);
    visit(clause.first);
    visit(clause.end);
  }
  void visit(const ast::GatherClause& clause) {
    use_tensor(clause.keys);
    if (clause.counts) use_tensor(*clause.counts);
  }
  void use_tensor(const ast::Name& name) {
    const auto found = names_.find(name.text);
    if (found != names_.end()) use(name.span, found->second);
  }
  void visit(const ast::ShardClause& clause) { word(WordKind::choice, clause.axis); }
  void visit(const ast::QuantizeClause& clause) {
    word(WordKind::choice, clause.by);
    if (clause.of) word(WordKind::choice, *clause.of);
    for (const ast::QuantizeEntry& entry : clause.entries) {
      if (entry.dtype) word(WordKind::type, *entry.dtype);
      visit(entry.fallback);
    }
  }
  void visit(const ast::ImportClause& clause) {
    use(clause.path.span, add({.meaning = Meaning::import, .name = clause.path.text}));
  }
  void visit(const ast::OtherClause&) {}

  void visit(const ast::FunctionClause& function) {
    const std::size_t outside = locals_.size();
    for (const ast::Name& parameter : function.parameters) {
      define_local(Meaning::argument, parameter, &function, nullptr);
    }
    for (const ast::LetClause& let : function.lets) {
      visit(let.value);
      define_local(Meaning::local, let.name, &function, &let.value);
    }
    visit(function.value);
    locals_.resize(outside);
  }

  void visit(const Expr& expr) {
    if (expr.kind == ExprKind::reduce) return reduction(expr);
    if (expr.kind == ExprKind::call) call(expr);
    if (expr.kind == ExprKind::name || expr.kind == ExprKind::index) name(expr);
    visit(expr.operands);
  }

  void reduction(const Expr& expr) {
    word(WordKind::function, {expr.text, expr.head});
    visit(expr.operands[1]);
    visit(expr.operands[2]);
    const ast::Name variable{expr.operands[0].text, expr.operands[0].head};
    define_local(Meaning::variable, variable, nullptr, nullptr);
    visit(expr.operands[3]);
    locals_.pop_back();
  }

  const sema::Library& library_;
};

Index::Index(const ast::Spec& spec, const sema::Library& library) {
  Indexer(*this, library).run(spec);
}

const Use* Index::at(std::uint32_t offset) const {
  auto next =
      std::ranges::upper_bound(uses_, offset, {}, [](const Use& use) { return use.span.begin; });
  if (next == uses_.begin()) return nullptr;
  const Use& found = *std::prev(next);
  return offset <= found.span.end ? &found : nullptr;
}

std::vector<Span> Index::uses_of(std::size_t symbol) const {
  std::vector<Span> spans;
  for (const Use& use : uses_) {
    if (use.symbol == symbol) spans.push_back(use.span);
  }
  return spans;
}

}  // namespace attn::tools::lsp
