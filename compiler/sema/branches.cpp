#include "compiler/sema/branches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/sema/branch_inputs.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using support::quoted;

// Clauses of one branch, and those that a spec with branches does not have.
constexpr std::string_view kOfBranches[] = {"scale",  "score",     "mask",    "sink",
                                            "weight", "normalize", "prologue"};
struct Excluded {
  std::string_view word, help;
};
constexpr Excluded kExcluded[] = {
    {"epilogue", "write it into `combine`, as in `combine 2 * (near + far);`"},
    {"gate", "write it into `combine`, as in `combine sigmoid(g[h]) * (near + far);`"},
    {"dropout", "leave it out: each branch would draw the same numbers"},
    {"quantize",
     "use `dtype bf16;` without `quantize`: branches are combined in f32, without scales"},
    {"shard", "leave it out: branches are computed on one GPU"}};

bool is_combine(const ast::Clause& clause) { return clause.keyword.text == "combine"; }

const ast::BranchClause* branch_of(const ast::Clause& clause) {
  return std::get_if<ast::BranchClause>(&clause.body);
}

// The names of what the branches beside the spec's own make, in a training pair or by `outputs`.
std::vector<std::string> names_of_outputs(const ast::Spec& spec) {
  std::vector<std::string> names;
  const std::string own = own_branch(spec);
  for (const ast::Clause& clause : spec.clauses) {
    const ast::BranchClause* branch = branch_of(clause);
    if (branch == nullptr || branch->name.text == own) continue;
    names.push_back(ir::output_of_branch(branch->name.text));
    names.push_back(branch->name.text + "_lse");
  }
  return names;
}

// All names that a branch may bind: its o, lse, and the gradient of o.
std::vector<std::string> names_made(const std::string& branch) {
  const std::string o = ir::output_of_branch(branch);
  return {o, branch + "_lse", "d_" + o};
}

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Takes the names of what branches make out of the clauses `outputs`: whether there were any.
bool take_outputs(ast::Spec& spec, const std::vector<std::string>& made) {
  std::size_t count = 0;
  for (ast::Clause& clause : spec.clauses) {
    auto* outputs = std::get_if<ast::OutputsClause>(&clause.body);
    if (outputs == nullptr) continue;
    count += std::erase_if(outputs->outputs,
                           [&](const ast::Name& name) { return is_among(made, name.text); });
  }
  return count > 0;
}

// The clauses of one branch: those of all, and its own.
ast::Spec of_branch(const ast::Spec& spec, const std::string& name, bool is_whole) {
  ast::Spec part = spec;
  part.clauses.clear();
  std::string section;
  for (const ast::Clause& clause : spec.clauses) {
    if (const auto* branch = branch_of(clause)) section = branch->name.text;
    const bool is_own = contains(kOfBranches, clause.keyword.text);
    const bool is_of_whole =
        is_combine(clause) || clause.keyword.text == "grad" || clause.keyword.text == "outputs";
    if (is_of_whole && !is_whole) continue;
    if (is_own && !section.empty() && section != name) continue;
    part.clauses.push_back(clause);
  }
  return part;
}

class Branches {
 public:
  Branches(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink, Spans* spans,
           const AnalyzeOne& analyze)
      : spec_(spec), bindings_(bindings), sink_(sink), spans_(spans), analyze_(analyze) {}

  std::optional<ir::Attention> run() {
    const std::size_t before = sink_.error_count();
    check_clauses();
    if (sink_.error_count() > before) return std::nullopt;
    const BranchInputs inputs(spec_, bindings_, sink_);
    const std::string own = own_branch(spec_);
    std::vector<ir::Branch> made;
    for (const ast::Clause& clause : spec_.clauses) {
      const ast::BranchClause* branch = branch_of(clause);
      if (branch == nullptr || branch->name.text == own) continue;
      if (auto one = other(*branch, inputs)) made.push_back(std::move(*one));
    }
    read_.collects = false;
    ast::Spec of_whole = of_branch(spec_, own, true);
    const bool wants_branches = take_outputs(of_whole, names_of_outputs(spec_));
    auto whole = analyze_(of_whole, bindings_, spans_, read_);
    if (!whole || sink_.error_count() > before) return std::nullopt;
    whole->wants_branches = wants_branches && !made.empty();
    leave_out_sums(*whole);
    for (ir::Branch& branch : made) join(*whole, std::move(branch));
    return whole;
  }

 private:
  diag::Diagnostic& report(const ast::Name& at, std::string message) {
    return sink_.report(Code::not_available_here, at.span, std::move(message));
  }

  void check_clauses() {
    const ast::Clause* combine = nullptr;
    const ast::Clause* branch = nullptr;
    for (const ast::Clause& clause : spec_.clauses) {
      check_clause(clause, combine);
      if (is_combine(clause)) combine = &clause;
      if (branch_of(clause) != nullptr) branch = &clause;
    }
    if (branch == nullptr) {
      report(combine->keyword, "`combine` has no branches").help =
          "begin each attention with a branch, as `branch near;`, or write `epilogue` for a single "
          "one";
    } else if (combine == nullptr) {
      report(branch->keyword, "branches are not combined").help =
          fmt::format("say below them what o is, as in `combine {};`", example());
    } else if (own_branch(spec_).empty()) {
      report(branch->keyword, "no branch reads `q`, `k` and `v` themselves").help =
          "leave out the inputs of one branch, and let its tensors be `q`, `k` and `v`";
    }
  }

  // "a + b", of the first branches.
  std::string example() const {
    std::string text;
    for (const ast::Clause& clause : spec_.clauses) {
      const auto* branch = branch_of(clause);
      if (branch != nullptr) text += (text.empty() ? "" : " + ") + branch->name.text;
    }
    return text;
  }

  void check_clause(const ast::Clause& clause, const ast::Clause* combine) {
    const std::string& word = clause.keyword.text;
    const auto* excluded = std::ranges::find(kExcluded, word, &Excluded::word);
    if (excluded != std::end(kExcluded)) {
      report(clause.keyword, fmt::format("{} cannot be used beside branches", quoted(word))).help =
          excluded->help;
    }
    const bool is_late = contains(kOfBranches, word) || branch_of(clause) != nullptr;
    if (combine != nullptr && is_late) {
      auto& diagnostic = report(clause.keyword, fmt::format("{} follows `combine`", quoted(word)));
      diagnostic.labels.push_back({combine->keyword.span, "this ends the branches"});
      diagnostic.help = "write it above, below the `branch` that it is of";
    }
    if (const auto* outputs = std::get_if<ast::OutputsClause>(&clause.body))
      check_outputs(outputs->outputs);
    if (const auto* gradients = std::get_if<ast::GradClause>(&clause.body)) {
      for (const ast::Name& name : gradients->tensors) {
        if (name.text != "lse") continue;
        report(name, "`lse` is of one attention, and there are several").help =
            "list the inputs alone, as in `grad q, k, v;`";
      }
    }
    if (const auto* branch = branch_of(clause)) check_taken(*branch);
  }

  // What a backward reads may be listed: all of it.
  void check_outputs(const std::vector<ast::Name>& names) {
    const std::vector<std::string> made = names_of_outputs(spec_);
    std::size_t listed = 0;
    for (const ast::Name& name : names) {
      constexpr std::string_view kOfWhole[] = {"o", "o_inner", "lse"};
      listed += is_among(made, name.text) ? 1 : 0;
      if (is_among(made, name.text) || contains(kOfWhole, name.text)) continue;
      report(name, fmt::format("{} is not an output of several attentions", quoted(name.text)))
          .help = "write `outputs o;`, or leave the clause out";
    }
    if (listed == 0 || listed == made.size()) return;
    report(names.front(), "the outputs of branches are listed all, or none").help =
        fmt::format("they are {}", fmt::join(made, ", "));
  }

  // What a branch makes is bound by names, too: no other branch, output or tensor has them.
  void check_taken(const ast::BranchClause& branch) {
    const std::vector<std::string> made = names_made(branch.name.text);
    for (const ir::Output& output : ir::kOutputs) {
      if (is_among(made, output.name))
        refuse_taken(branch.name, fmt::format("{} is the name of an output", quoted(output.name)));
    }
    for (const ast::Clause& clause : spec_.clauses) {
      const auto* other = branch_of(clause);
      if (other == &branch) break;
      if (other == nullptr || other->name.text == branch.name.text) continue;
      check_both(branch.name, made, other->name);
    }
    for (const ast::Clause& clause : spec_.clauses) {
      if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
        const bool is_learned = clause.keyword.text == "learn";
        check_declared(branch.name, made, tensor->name, is_learned);
      } else if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) {
        check_declared(branch.name, made, param->name, false);
      }
    }
  }

  diag::Diagnostic& refuse_taken(const ast::Name& at, std::string message) {
    auto& diagnostic = sink_.report(Code::reserved_name, at.span, std::move(message));
    diagnostic.help = "choose another name";
    return diagnostic;
  }

  // Two branches must not make the same.
  void check_both(const ast::Name& branch, const std::vector<std::string>& made,
                  const ast::Name& other) {
    for (const std::string& name : names_made(other.text)) {
      if (!is_among(made, name)) continue;
      refuse_taken(branch, fmt::format("branches {} and {} would both make {}", quoted(other.text),
                                       quoted(branch.text), quoted(name)))
          .labels.push_back({other.span, "the other branch"});
    }
  }

  // Neither a tensor or param, nor the gradient of a learned one, may be what a branch makes.
  void check_declared(const ast::Name& branch, const std::vector<std::string>& made,
                      const ast::Name& declared, bool is_learned) {
    if (is_among(made, declared.text)) {
      refuse_taken(declared, fmt::format("{} is reserved for the branch {}", quoted(declared.text),
                                         quoted(branch.text)));
    }
    const std::string gradient = "d_" + declared.text;
    if (!is_learned || !is_among(made, gradient)) return;
    refuse_taken(declared,
                 fmt::format("{}, the gradient of {}, is reserved for the branch {}",
                             quoted(gradient), quoted(declared.text), quoted(branch.text)));
  }

  std::optional<ir::Branch> other(const ast::BranchClause& clause, const BranchInputs& inputs) {
    const std::optional<GivenInputs> given = inputs.of(clause);
    if (!given) return std::nullopt;
    ast::Spec part = of_branch(spec_, clause.name.text, false);
    Bindings bindings = bindings_;
    inputs.apply(*given, part, bindings);
    read_.collects = true;
    for (const auto& [tensor, by] : given->names) read_.names.insert(by);
    Spans spans;
    std::optional<ir::Attention> attention = analyze_(part, bindings, &spans, read_);
    if (!attention) return std::nullopt;
    leave_out_sums(*attention);
    for (const auto& [tensor, by] : given->names)
      attention->layouts[tensor] = {.kind = ir::LayoutKind::bhsd};
    attention->branch = clause.name.text;
    if (spans_ != nullptr) spans_->branches.push_back(std::move(spans));
    return ir::Branch{std::move(*attention), {}, given->names};
  }

  // Sums along keys that no expression of the branch reads.
  static void leave_out_sums(ir::Attention& attention) {
    ir::Attention others = attention;
    others.sums.clear();
    const std::vector<ir::ExprId> below = ir::reachable(others.dag, others.roots());
    std::erase_if(attention.sums, [&](const ir::KeySum& sum) {
      return std::ranges::none_of(below, [&](ir::ExprId id) {
        return others.dag[id].is(ir::Op::load_) && others.dag.symbol_of(id) == sum.tensor.name;
      });
    });
  }

  // The o of the branch, of the dims that the attention has.
  static void join(ir::Attention& whole, ir::Branch branch) {
    branch.o.name = ir::output_of_branch(branch.attention.branch);
    branch.o.dtype = whole.dtype;
    branch.o.pos = branch.attention.pos;
    for (const ir::Dim dim : {ir::Dim::B, ir::Dim::Hq, ir::Dim::Sq, ir::Dim::Dv}) {
      const auto size = whole.dims.get(dim);
      branch.o.extents.push_back(size ? whole.dag.integer(*size)
                                      : whole.dag.dim(std::string(to_string(dim))));
    }
    whole.branches.push_back(std::move(branch));
  }

  const ast::Spec& spec_;
  const Bindings& bindings_;
  diag::Sink& sink_;
  Spans* spans_;
  const AnalyzeOne& analyze_;
  NamesRead read_;
};

}  // namespace

bool has_branches(const ast::Spec& spec) {
  return std::ranges::any_of(spec.clauses, [](const ast::Clause& clause) {
    return branch_of(clause) != nullptr || is_combine(clause);
  });
}

std::string own_branch(const ast::Spec& spec) {
  std::string name;
  for (const ast::Clause& clause : spec.clauses) {
    const ast::BranchClause* branch = branch_of(clause);
    if (branch != nullptr && branch->inputs.empty()) name = branch->name.text;
  }
  return name;
}

// That of the spec's own attention is what the epilogue is of; others are read.
Value Scope::branch(const ast::Expr& expr) {
  const ir::SourcePos pos = operations_.place(expr.span);
  ir::Dag& dag = attention_.dag;
  if (expr.text == attention_.branch)
    return operations_.leaf(dag.leaf(ir::Op::output_, pos), kBranch);
  const ir::ExprId at[] = {dag.leaf(ir::Op::batch_, pos), dag.leaf(ir::Op::head_, pos),
                           dag.leaf(ir::Op::row_, pos), dag.leaf(ir::Op::depth_, pos)};
  return operations_.leaf(
      dag.add_symbol(ir::Op::load_, ir::output_of_branch(expr.text), ir::Type::real, at, pos),
      kBranch);
}

std::optional<ir::Attention> analyze_branches(const ast::Spec& spec, const Bindings& bindings,
                                              diag::Sink& sink, Spans* spans,
                                              const AnalyzeOne& analyze) {
  return Branches(spec, bindings, sink, spans, analyze).run();
}

}  // namespace attn::sema
