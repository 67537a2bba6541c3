#include "compiler/sema/analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/ast/print.h"
#include "compiler/sema/branches.h"
#include "compiler/sema/cache.h"
#include "compiler/sema/clauses.h"
#include "compiler/sema/environment.h"
#include "compiler/sema/epilogue.h"
#include "compiler/sema/gather.h"
#include "compiler/sema/layouts.h"
#include "compiler/sema/names.h"
#include "compiler/sema/other_clauses.h"
#include "compiler/sema/prologue.h"
#include "compiler/sema/quantize.h"
#include "compiler/sema/repeats.h"
#include "compiler/sema/row_formats.h"
#include "compiler/sema/scope.h"
#include "compiler/sema/sums.h"
#include "compiler/sema/values.h"
#include "compiler/sema/weights.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Type;
using support::quoted;

constexpr std::size_t kMostDimensions = 8;  // of a tensor, as in plans

constexpr Site kExtent{"the size of a tensor", kConstants,
                       "a size may use only numbers, dimensions and spec parameters"};
constexpr Site kScoreSite{"the score", kScore | kIndexes | kTensors | kLearned | kSums | kParams};
constexpr Site kMaskSite{"a mask", kIndexes | kTensors | kParams,
                         "a mask cannot read scores; for a threshold use "
                         "`score where(condition, score, -inf);`"};
constexpr Site kRuns{"a number of runs", kConstants};
constexpr Site kLetSite{
    "a let", kScore | kIndexes | kTensors | kLearned | kSums | kParams | kResult | kColumn};

// A factor that cannot be a scale, as a score clause: "score score * t[h];".
std::string as_score(const ast::Expr& factor) {
  const std::string text = ast::to_dsl(factor);
  const bool is_operand = factor.operators.empty();
  return is_operand ? fmt::format("score score * {};", text)
                    : fmt::format("score score * ({});", text);
}

// The attention so far, and what is said of clauses that repeat.
class AnalyzedSpec {
 public:
  AnalyzedSpec(const ast::Spec& spec, const Library& library, const Bindings& bindings,
               diag::Sink& sink, Spans* spans, std::optional<std::uint64_t> most_work,
               NamesRead& read)
      : spec_(spec),
        library_(library),
        sink_(sink),
        spans_(spans),
        most_work_(most_work),
        read_(read),
        environment_(make_environment(spec, bindings, sink)) {
    attention_.name = spec.name.text;
    attention_.dims = environment_.dims;
    attention_.pos = place(spec.name.span);
    attention_.branch = own_branch(spec);
  }

 protected:
  ir::SourcePos place(support::Span span) const {
    const support::Place at = sink_.source().place(span.begin);
    return {at.line, at.column};
  }

  diag::Diagnostic& report(Code code, support::Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  // The type if it is in `allowed`; else reports it and returns `fallback`.
  DType dtype(const ast::Name& name, std::initializer_list<DType> allowed, DType fallback) {
    const auto type = parse_dtype(name.text);
    if (type && std::ranges::find(allowed, *type) != allowed.end()) return *type;
    std::vector<std::string_view> words;
    for (const DType one : allowed) words.push_back(to_string(one));
    const std::string_view here = type_elsewhere(name.text);
    auto& diagnostic = report(Code::bad_choice, name.span,
                              fmt::format("{} is not a valid type here", quoted(name.text)));
    if (contains(words, here)) {
      did_you_mean(here).put(diagnostic, name.span);
    } else {
      // A type that is not allowed here is no misspelling.
      expect_one_of(words, type ? "" : name.text, diagnostic, name.span);
    }
    return fallback;
  }

  void set_dtype(const ast::Name& name) {
    const std::string_view here = type_elsewhere(name.text);
    const std::string_view type = here.empty() ? std::string_view(name.text) : here;
    const std::string_view integers[] = {"i8", "u8", "i16", "i32", "i64", "bool"};
    const bool is_integer = contains(integers, type);
    if (!is_integer && type != "f32" && type != "f64" && type != "tf32") {
      attention_.dtype =
          dtype(name, {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}, DType::bf16);
      return;
    }
    auto& diagnostic =
        report(Code::bad_choice, name.span,
               fmt::format("no kernel takes q, k and v of type {}", quoted(name.text)));
    if (is_integer) {
      diagnostic.help = ast::hint_for(
          sink_.source(), "8-bit attention is of floats: `dtype e4m3;` and `quantize per_tensor;`");
      return;
    }
    diagnostic.help = "write `bf16` or `f16`; scores and sums are computed in f32 all the same";
    for (const DType one : {DType::bf16, DType::f16}) {
      diagnostic.add_replacement(name.span, to_string(one));
    }
  }

  bool has_sink() const {
    return std::ranges::any_of(spec_.clauses, [](const ast::Clause& clause) {
      return std::holds_alternative<ast::SinkClause>(clause.body);
    });
  }

  const ast::Spec& spec_;
  const Library& library_;
  diag::Sink& sink_;
  Spans* spans_;
  std::optional<std::uint64_t> most_work_;
  NamesRead& read_;
  Environment environment_;
  ir::Attention attention_;
};

// Declares tensors and params, and checks what they are declared with.
class DeclaredTensors : public AnalyzedSpec {
 public:
  using AnalyzedSpec::AnalyzedSpec;

 protected:
  void other(const ast::Clause& clause, Scope& scope) {
    for (const std::string& name : std::get<ast::OtherClause>(clause.body).words) {
      scope.poison(name);
    }
    report_other_clause(clause, sink_);
  }

  void declare(const ast::Clause& clause, Scope& scope) {
    if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      const DType type =
          is_learned(clause)
              ? dtype(tensor->dtype, {DType::f16, DType::bf16, DType::f32, DType::f64}, DType::f32)
              : dtype(tensor->dtype,
                      {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::u8,
                       DType::i32, DType::i64, DType::boolean},
                      DType::f32);
      // An unknown type was reported; uses of the tensor are not checked.
      const bool known = parse_dtype(tensor->dtype.text).has_value();
      scope.declare(tensor->name,
                    {.kind = known ? Symbol::Kind::tensor : Symbol::Kind::poisoned,
                     .dtype = type,
                     .tensor = tensor},
                    true);
    } else if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) {
      const DType type = dtype(param->dtype, {DType::f32, DType::i32}, DType::f32);
      const bool known = to_string(type) == param->dtype.text;
      scope.declare(param->name, {known ? Symbol::Kind::param : Symbol::Kind::poisoned, {}, type},
                    true);
      attention_.params.push_back({param->name.text, type, place(param->name.span)});
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      scope.declare(let->name, {.kind = Symbol::Kind::let, .sums = is_sum(let->value)}, false);
    } else if (const auto* function = std::get_if<ast::FunctionClause>(&clause.body)) {
      const bool inside = clause.span.begin > spec_.name.span.begin;
      scope.declare(function->name,
                    {.kind = Symbol::Kind::function, .function = function, .inside = inside},
                    false);
    } else if (const auto* branch = std::get_if<ast::BranchClause>(&clause.body)) {
      scope.declare(branch->name, {.kind = Symbol::Kind::branch}, true);
    } else if (std::holds_alternative<ast::OtherClause>(clause.body)) {
      other(clause, scope);
    }
  }

  static bool is_learned(const ast::Clause& clause) { return clause.keyword.text == "learn"; }

  void add_tensor(const ast::Clause& clause, Scope& scope) {
    const auto* declared = std::get_if<ast::TensorClause>(&clause.body);
    if (!declared || attention_.find_tensor(declared->name.text)) return;
    ir::CapturedTensor tensor{declared->name.text, DType::f32, {}, place(declared->name.span)};
    tensor.learned = is_learned(clause);
    if (!rank_fits(*declared)) return;
    tensor.dtype = parse_dtype(declared->dtype.text).value_or(DType::f32);
    for (const ast::Fact& fact : declared->facts) add_fact(fact, scope, tensor);
    for (const ast::Expr& extent : declared->extents) {
      const auto value = scope.check_as(extent, kExtent, Type::integer, "divide with `//`");
      if (!value) continue;
      if (!extent_fits(extent, value->id)) continue;
      tensor.extents.push_back(value->id);
    }
    if (tensor.extents.size() != declared->extents.size()) return;  // reported
    if (declared->fallback) add_default(*declared, scope, tensor);
    attention_.tensors.push_back(std::move(tensor));
  }

  bool rank_fits(const ast::TensorClause& declared) {
    const std::size_t rank = declared.extents.size();
    if (rank <= kMostDimensions) return true;
    report(Code::too_many_dimensions, declared.extents[kMostDimensions].span,
           fmt::format("{} has {} dimensions", quoted(declared.name.text), rank))
        .help = fmt::format("a tensor has at most {}", kMostDimensions);
    return false;
  }

  // The gradient of a learned tensor is bound as d_NAME.
  void check_gradient_name(const ast::Clause& clause) {
    const ast::Name* name = nullptr;
    if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) name = &tensor->name;
    if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) name = &param->name;
    if (name == nullptr || !name->text.starts_with("d_")) return;
    const ir::CapturedTensor* of = attention_.find_tensor(std::string_view(name->text).substr(2));
    if (of == nullptr || !of->learned) return;
    report(
        Code::reserved_name, name->span,
        fmt::format("{} is reserved for the gradient of {}", quoted(name->text), quoted(of->name)))
        .help = "choose another name";
  }

  void add_fact(const ast::Fact& fact, Scope& scope, ir::CapturedTensor& tensor) {
    const std::size_t arguments = fact.arguments.size();
    if (fact.name.text == "monotone" && arguments == 0) {
      tensor.monotone = true;
    } else if (fact.name.text == "runs" && (arguments == 1 || arguments == 2)) {
      tensor.runs = run_size(fact.arguments[0], scope);
      if (arguments == 2) tensor.longest_run = run_size(fact.arguments[1], scope);
    } else {
      report(Code::bad_choice, fact.name.span,
             fmt::format("{} is not a fact about a tensor", quoted(fact.name.text)))
          .help =
          "the facts are `monotone` (elements never decrease along the last axis), `runs(8)` (at "
          "most 8 runs of equal elements along it) and `runs(8, 512)` (each of at most 512 "
          "elements)";
    }
  }

  std::optional<ir::ExprId> run_size(const ast::Expr& size, Scope& scope) {
    const auto value = scope.check_as(size, kRuns, Type::integer, "divide with `//`");
    if (!value || !extent_fits(size, value->id)) return std::nullopt;
    return value->id;
  }

  // Real elements may be given as integers, and wide ones as those of 32 bits.
  void add_default(const ast::TensorClause& declared, Scope& scope, ir::CapturedTensor& tensor) {
    const Type type = ir::value_type(tensor.dtype);
    auto value = scope.check_default(*declared.fallback, kDefaultSite, tensor.extents,
                                     spec_.replaced.contains(tensor.name));
    const auto converted = [&](ir::Op op) {
      value->id = attention_.dag.add(op, {value->id}, tensor.pos);
      value->type = type;
    };
    if (value && ir::is_integral(value->type) && type == Type::real) converted(ir::Op::to_real_);
    if (value && value->type == Type::integer && type == Type::wide) converted(ir::Op::widen_);
    if (value && scope.has_type(*declared.fallback, *value, type, kDefaultSite)) {
      tensor.fallback = value->id;
    }
  }

  bool extent_fits(const ast::Expr& extent, ir::ExprId id) {
    const auto size = ir::fold_integer(attention_.dag, id);
    const ir::ExprId roots[] = {id};
    const bool open =
        std::ranges::any_of(ir::reachable(attention_.dag, roots),
                            [&](ir::ExprId one) { return attention_.dag[one].is(ir::Op::dim_); });
    const bool no_keys = attention_.dims.get(ir::Dim::Skv) == 0;
    if (size ? *size >= (no_keys ? 0 : 1) : open) return true;
    report(Code::bad_size, extent.span,
           size ? fmt::format("the size is {}", *size) : "the size does not fit in 32 bits")
        .help = "a size is a positive 32-bit integer";
    return false;
  }
};

class Analyzer : private DeclaredTensors {
 public:
  using DeclaredTensors::DeclaredTensors;

  std::optional<ir::Attention> run() {
    Scope scope(environment_, library_, attention_, sink_);
    if (spans_) scope.record(spans_->of);
    scope.stop_after(most_work_);
    scope.set_attention_begin(spec_.span.begin);
    for (const ast::Clause& clause : spec_.preamble) declare(clause, scope);
    for (const ast::SpecParameter& parameter : spec_.parameters) {
      scope.declare(parameter.name, {Symbol::Kind::parameter}, false);
    }
    for (const ast::Clause& clause : spec_.clauses) declare(clause, scope);
    for (const std::string& name : environment_.unknown) scope.poison(name);
    check_repeats(spec_, sink_);
    for (const ast::Clause& clause : spec_.clauses) settings(clause);
    begin_weights(spec_, attention_, sink_);
    attention_.layouts = make_layouts(layout_, environment_, sink_);
    add_lengths(lengths_, spec_.name, attention_, scope, sink_);
    set_quantize(spec_, attention_, scope, sink_);
    set_values(spec_, attention_, environment_, sink_);
    check_row_format(spec_, attention_, sink_);
    for (const ast::Clause& clause : spec_.clauses) add_tensor(clause, scope);
    set_gather(spec_, attention_, scope, sink_);
    for (const ast::Clause& clause : spec_.clauses) check_gradient_name(clause);
    if (lengths_) add_length_defaults(*lengths_, spec_.replaced, attention_, scope);
    scope.check_functions();
    for (const ast::Clause& clause : spec_.clauses) {
      scope.begin_clause(clause.span);
      expressions(clause, scope);
    }
    if (scope.is_stopped()) {
      sink_.set_stopped();
      return std::nullopt;
    }
    finish(scope);
    if (sink_.has_errors()) return std::nullopt;
    return std::move(attention_);
  }

 private:
  void settings(const ast::Clause& clause) {
    if (const auto* type = std::get_if<ast::DtypeClause>(&clause.body)) {
      set_dtype(type->dtype);
    } else if (const auto* align = std::get_if<ast::AlignClause>(&clause.body)) {
      set_align(*align, attention_, sink_);
    } else if (const auto* shard = std::get_if<ast::ShardClause>(&clause.body)) {
      set_shard(*shard, attention_, sink_);
    } else if (const auto* outputs = std::get_if<ast::OutputsClause>(&clause.body)) {
      set_outputs(*outputs,
                  {has_sink(), find_quantize(spec_).quantize != nullptr && !quantizes_cache(spec_),
                   find_epilogue(spec_) != nullptr},
                  attention_, sink_);
    } else if (const auto* layout = std::get_if<ast::LayoutClause>(&clause.body)) {
      layout_ = layout;
    } else if (const auto* lengths = std::get_if<ast::LengthsClause>(&clause.body)) {
      lengths_ = lengths;
    } else if (std::holds_alternative<ast::DeterministicClause>(clause.body)) {
      attention_.deterministic = true;
    }
  }

  void expressions(const ast::Clause& clause, Scope& scope) {
    if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      define_let(*let, scope);
    } else if (const auto* scale = std::get_if<ast::ScaleClause>(&clause.body)) {
      const std::string help = fmt::format(
          "the scale is a single number for all scores; write `{}`", as_score(scale->value));
      const Site site{"the scale", kParams, help};
      const auto value = scope.check_as(scale->value, site, Type::real, "");
      if (value) scale_ = value->id;
    } else if (const auto* score = std::get_if<ast::ScoreClause>(&clause.body)) {
      set_score(clause.keyword.span, score->value, scope);
    } else if (const auto* mask = std::get_if<ast::MaskClause>(&clause.body)) {
      const auto value = scope.check_as(mask->value, kMaskSite, Type::boolean,
                                        "a mask is a condition: compare, for example `!= 0`");
      if (value) attention_.masks.push_back(value->id);
    } else if (std::holds_alternative<ast::EpilogueClause>(clause.body)) {
      add_epilogue(clause, attention_, scope, sink_);
    } else if (const auto* sink = std::get_if<ast::SinkClause>(&clause.body)) {
      set_sink(*sink, attention_, scope);
    } else if (const auto* prologue = std::get_if<ast::PrologueClause>(&clause.body)) {
      add_prologue(*prologue, attention_, scope, sink_);
    } else if (std::holds_alternative<ast::DropoutClause>(clause.body)) {
      set_dropout(clause, attention_, environment_, scope, sink_);
    } else if (const auto* gradients = std::get_if<ast::GradClause>(&clause.body);
               gradients && attention_.gradients.empty()) {  // a second one was reported
      set_gradients(*gradients, attention_, sink_);
    }
  }

  void define_let(const ast::LetClause& let, Scope& scope) {
    if (is_sum(let.value)) {
      scope.define_sum(let.name, check_sum(let, attention_, scope, sink_));
    } else {
      scope.define_let(let.name, scope.check(let.value, kLetSite));
    }
  }

  void set_score(support::Span keyword, const ast::Expr& expr, Scope& scope) {
    const auto value =
        scope.check_as(expr, kScoreSite, Type::real, "a condition belongs in a `mask` clause");
    if (!value) return;
    const bool is_weak = !expr.operators.empty() && (!expr.grouped || sink_.source().is_json()) &&
                         ast::precedence(expr.operators[0]) < ast::precedence(ast::Operator::add);
    if (spans_) {
      spans_->scores.push_back({keyword, expr.span, scope.score().id, value->id, is_weak});
    }
    scope.set_score(*value);
  }

  void finish(Scope& scope) {
    finish_weights(spec_, attention_, scope, sink_);
    attention_.scale = scale_ ? *scale_ : default_scale();
    check_weights(spec_, attention_, sink_);
    if (!sink_.has_errors()) scope.warn_unused(read_.names, read_.collects);
  }

  // 1 / sqrt(Dqk).
  ir::ExprId default_scale() {
    ir::Dag& dag = attention_.dag;
    const ir::SourcePos pos = attention_.pos;
    if (const auto size = attention_.dims.get(ir::Dim::Dqk)) {
      return dag.real(1.0 / std::sqrt(static_cast<double>(*size)), pos);
    }
    const ir::ExprId size = dag.add(ir::Op::to_real_, {dag.dim("Dqk", pos)}, pos);
    return dag.add(ir::Op::div_, {dag.real(1.0, pos), dag.add(ir::Op::sqrt_, {size}, pos)}, pos);
  }

  std::optional<ir::ExprId> scale_;
  const ast::LayoutClause* layout_ = nullptr;
  const ast::LengthsClause* lengths_ = nullptr;
};

}  // namespace

std::optional<ir::Attention> analyze(const ast::Spec& spec, const Library& library,
                                     const Bindings& bindings, diag::Sink& sink, Spans* spans,
                                     std::optional<std::uint64_t> most_work) {
  if (spec.is_library) {
    sink.report(Code::no_attention, spec.span, "this is a library: it has no attention").help =
        "use its functions in a spec with `import`";
    return std::nullopt;
  }
  const auto one = [&](const ast::Spec& part, const Bindings& bound, Spans* places,
                       NamesRead& read) {
    return Analyzer(part, library, bound, sink, places, most_work, read).run();
  };
  if (has_branches(spec)) return analyze_branches(spec, bindings, sink, spans, one);
  NamesRead read;
  return one(spec, bindings, spans, read);
}

std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink, Spans* spans) {
  const Library library = spec.is_library ? Library{} : load_imports(spec, sink);
  return analyze(spec, library, bindings, sink, spans);
}

}  // namespace attn::sema
