#include "compiler/sema/analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/sema/environment.h"
#include "compiler/sema/layouts.h"
#include "compiler/sema/names.h"
#include "compiler/sema/other_clauses.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Type;
using support::quoted;

constexpr Site kExtent{"the size of a tensor", kConstants};
constexpr Site kScaleSite{"the scale", kParams};
constexpr Site kScoreSite{"the score", kScore | kIndexes | kTensors | kParams};
constexpr Site kMaskSite{"a mask", kIndexes | kTensors | kParams};
constexpr Site kLetSite{"a let", kScore | kIndexes | kTensors | kParams};

class Analyzer {
 public:
  Analyzer(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink)
      : spec_(spec), sink_(sink), environment_(make_environment(spec, bindings, sink)) {
    attention_.name = spec.name.text;
    attention_.dims = environment_.dims;
    attention_.pos = place(spec.name.span);
  }

  std::optional<ir::Attention> run() {
    Scope scope(environment_, attention_, sink_);
    for (const ast::Clause& clause : spec_.preamble) other(clause, scope);
    for (const ast::SpecParameter& parameter : spec_.parameters) {
      scope.declare(parameter.name, {Symbol::Kind::parameter}, false);
    }
    for (const ast::Clause& clause : spec_.clauses) declare(clause, scope);
    check_repeats();
    for (const ast::Clause& clause : spec_.clauses) settings(clause);
    for (const ast::Clause& clause : spec_.clauses) add_tensor(clause, scope);
    for (const ast::Clause& clause : spec_.clauses) expressions(clause, scope);
    finish(scope);
    if (sink_.has_errors()) return std::nullopt;
    return std::move(attention_);
  }

 private:
  ir::SourcePos place(support::Span span) const {
    const support::Place at = sink_.source().place(span.begin);
    return {at.line, at.column};
  }

  diag::Diagnostic& report(Code code, support::Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  void other(const ast::Clause& clause, Scope& scope) {
    for (const std::string& name : std::get<ast::OtherClause>(clause.body).words) {
      scope.poison(name);
    }
    report_other_clause(clause, sink_);
  }

  // A type out of `allowed`, or `fallback` after reporting.
  DType dtype(const ast::Name& name, std::initializer_list<DType> allowed, DType fallback) {
    const auto type = parse_dtype(name.text);
    if (type && std::ranges::find(allowed, *type) != allowed.end()) return *type;
    if (name.text.starts_with("fp8") || name.text == "e4m3" || name.text == "e5m2") {
      report(Code::not_built_yet, name.span,
             fmt::format("type {} is not built yet", quoted(name.text)));
      return fallback;
    }
    std::vector<std::string_view> words;
    for (const DType one : allowed) words.push_back(to_string(one));
    report(Code::bad_choice, name.span, fmt::format("{} is no type for this", quoted(name.text)))
        .help = "possible: " + support::one_of(words);
    return fallback;
  }

  void declare(const ast::Clause& clause, Scope& scope) {
    if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      const DType type = dtype(tensor->dtype,
                               {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8,
                                DType::u8, DType::i32, DType::i64, DType::boolean},
                               DType::f32);
      // An unknown type was reported; how the tensor is read is unknown too.
      const bool known = parse_dtype(tensor->dtype.text).has_value();
      scope.declare(tensor->name, {known ? Symbol::Kind::tensor : Symbol::Kind::poisoned, {}, type},
                    true);
    } else if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) {
      const DType type = dtype(param->dtype, {DType::f32, DType::i32}, DType::f32);
      const bool known = to_string(type) == param->dtype.text;
      scope.declare(param->name, {known ? Symbol::Kind::param : Symbol::Kind::poisoned, {}, type},
                    true);
      attention_.params.push_back({param->name.text, type, place(param->name.span)});
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      scope.declare(let->name, {Symbol::Kind::let}, false);
    } else if (std::holds_alternative<ast::OtherClause>(clause.body)) {
      other(clause, scope);
    }
  }

  void check_repeats() {
    std::map<std::string, support::Span, std::less<>> seen;
    for (const ast::Clause& clause : spec_.clauses) {
      const std::string& word = clause.keyword.text;
      const std::string_view once[] = {"dtype", "layout", "scale", "outputs", "align"};
      if (!contains(once, word)) continue;
      const auto [first, added] = seen.emplace(word, clause.keyword.span);
      if (added) continue;
      report(Code::duplicate_clause, clause.keyword.span,
             fmt::format("{} may stand once", quoted(word)))
          .labels.push_back({first->second, "first here"});
    }
  }

  void settings(const ast::Clause& clause) {
    if (const auto* type = std::get_if<ast::DtypeClause>(&clause.body)) {
      attention_.dtype = dtype(type->dtype, {DType::f16, DType::bf16}, DType::bf16);
    } else if (const auto* align = std::get_if<ast::AlignClause>(&clause.body)) {
      set_align(align->align);
    } else if (const auto* outputs = std::get_if<ast::OutputsClause>(&clause.body)) {
      set_outputs(*outputs);
    } else if (const auto* layout = std::get_if<ast::LayoutClause>(&clause.body)) {
      layout_ = layout;
    }
  }

  void set_align(const ast::Name& align) {
    const std::string_view words[] = {to_string(ir::Align::top_left),
                                      to_string(ir::Align::bottom_right)};
    if (!contains(words, align.text)) {
      report(Code::bad_choice, align.span, fmt::format("{} is no alignment", quoted(align.text)))
          .help = "possible: " + support::one_of(words);
    }
    if (align.text == words[1]) attention_.align = ir::Align::bottom_right;
  }

  void set_outputs(const ast::OutputsClause& clause) {
    attention_.wants_o = attention_.wants_lse = false;
    for (const ast::Name& output : clause.outputs) {
      if (output.text == "max" || output.text == "sum_exp") {
        report(Code::not_built_yet, output.span,
               fmt::format("output {} is not built yet", quoted(output.text)));
        continue;
      }
      if (output.text != "o" && output.text != "lse") {
        report(Code::bad_choice, output.span, fmt::format("{} is no output", quoted(output.text)))
            .help = "possible: `o` or `lse`";
        continue;
      }
      bool& wanted = output.text == "o" ? attention_.wants_o : attention_.wants_lse;
      if (wanted) {
        report(Code::duplicate_name, output.span,
               fmt::format("{} is listed twice", quoted(output.text)));
      }
      wanted = true;
    }
  }

  void add_tensor(const ast::Clause& clause, Scope& scope) {
    const auto* declared = std::get_if<ast::TensorClause>(&clause.body);
    if (!declared || attention_.find_tensor(declared->name.text)) return;
    ir::CapturedTensor tensor{declared->name.text, DType::f32, {}, place(declared->name.span)};
    tensor.dtype = parse_dtype(declared->dtype.text).value_or(DType::f32);
    for (const ast::Expr& extent : declared->extents) {
      const auto value = scope.check_as(extent, kExtent, Type::integer, "divide with `//`");
      if (!value) continue;
      if (!extent_fits(extent, value->id)) continue;
      tensor.extents.push_back(value->id);
    }
    const bool whole = tensor.extents.size() == declared->extents.size();
    if (whole) attention_.tensors.push_back(std::move(tensor));
  }

  bool extent_fits(const ast::Expr& extent, ir::ExprId id) {
    const auto size = ir::fold_integer(attention_.dag, id);
    const ir::ExprId roots[] = {id};
    const bool open =
        std::ranges::any_of(ir::reachable(attention_.dag, roots),
                            [&](ir::ExprId one) { return attention_.dag[one].is(ir::Op::dim_); });
    if (size ? *size >= 1 : open) return true;
    report(Code::bad_size, extent.span,
           size ? fmt::format("the size would be {}", *size) : "the size does not fit 32 bits")
        .help = "a size is a positive 32-bit integer";
    return false;
  }

  void expressions(const ast::Clause& clause, Scope& scope) {
    if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      scope.define_let(let->name, scope.check(let->value, kLetSite));
    } else if (const auto* scale = std::get_if<ast::ScaleClause>(&clause.body)) {
      const auto value = scope.check_as(scale->value, kScaleSite, Type::real, "");
      if (value) scale_ = value->id;
    } else if (const auto* score = std::get_if<ast::ScoreClause>(&clause.body)) {
      const auto value = scope.check_as(score->value, kScoreSite, Type::real,
                                        "a condition belongs into a `mask` clause");
      if (value) scope.set_score(*value);
    } else if (const auto* mask = std::get_if<ast::MaskClause>(&clause.body)) {
      const auto value = scope.check_as(mask->value, kMaskSite, Type::boolean,
                                        "a mask says what is visible: compare, for example `!= 0`");
      if (value) attention_.masks.push_back(value->id);
    }
  }

  void finish(const Scope& scope) {
    attention_.score = scope.score().id;
    attention_.scale = scale_ ? *scale_ : default_scale();
    attention_.layouts = make_layouts(layout_, environment_, sink_);
    if (!sink_.has_errors()) scope.warn_unused();
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

  const ast::Spec& spec_;
  diag::Sink& sink_;
  Environment environment_;
  ir::Attention attention_;
  std::optional<ir::ExprId> scale_;
  const ast::LayoutClause* layout_ = nullptr;
};

}  // namespace

std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink) {
  return Analyzer(spec, bindings, sink).run();
}

}  // namespace attn::sema
