#include "compiler/sema/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using support::quoted;

constexpr std::string_view kPerTensor = "per_tensor";

// What other systems call a way to scale, and the help line for it.
struct OtherWay {
  std::string_view name;
  std::string_view help;
};
constexpr OtherWay kOtherWays[] = {
    {"delayed", "delayed scaling is `quantize per_tensor;`"},
    {"delayed_scaling", "delayed scaling is `quantize per_tensor;`"},
    {"current", "current scaling is `quantize per_tensor, o: bf16;`"},
    {"current_scaling", "current scaling is `quantize per_tensor, o: bf16;`"},
    {"tensorwise", "it is written `per_tensor`"},
    {"tensor", "it is written `per_tensor`"},
};
constexpr std::string_view kBlocks[] = {"mxfp8", "block", "blocks", "mx", "microscaling"};

// A tensor whose type the clause may give.
struct Typed {
  std::string_view name;
  DType ir::Quantize::*type;
  bool may_be_half;
};
constexpr Typed kTyped[] = {{"o", &ir::Quantize::o, true},
                            {"do", &ir::Quantize::d_o, false},
                            {"gradients", &ir::Quantize::gradients, true}};

class Quantization {
 public:
  Quantization(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink)
      : spec_(spec), attention_(attention), scope_(scope), sink_(sink) {}

  void set() {
    const QuantizeClauses clauses = find_quantize(spec_);
    if (clauses.quantize == nullptr) return check_absent(clauses);
    const auto& clause = std::get<ast::QuantizeClause>(clauses.quantize->body);
    if (!is_fp8(attention_.dtype)) return report_wide(clauses);
    if (!set_way(clause)) return;
    check_sigmoid(clauses.quantize->keyword.span);
    ir::Quantize& quantize = attention_.quantize.emplace();
    quantize.o = quantize.d_o = quantize.gradients = attention_.dtype;
    const support::Place at = sink_.source().place(clauses.quantize->keyword.span.begin);
    quantize.pos = {at.line, at.column};
    for (const ast::QuantizeEntry& entry : clause.entries) {
      if (entry.dtype && is_new(entry.name)) set_type(entry);
    }
    // Of which tensors is checked later, once all are declared.
    if (clauses.grad != nullptr) attention_.gradients = {"q"};
    reserve_names();
    for (const ir::Scale& scale : ir::kScales) {
      if (attention_.has(scale)) declare(scale.name);
    }
    for (const ast::QuantizeEntry& entry : clause.entries) {
      if (entry.fallback && is_new(entry.name)) set_default(entry);
    }
    attention_.gradients.clear();
  }

 private:
  diag::Diagnostic& report(Code code, support::Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  void check_absent(const QuantizeClauses& clauses) {
    if (!is_fp8(attention_.dtype)) return;
    report(Code::no_scales, std::get<ast::DtypeClause>(clauses.dtype->body).dtype.span,
           fmt::format("{} needs a `quantize` clause: 8-bit tensors have scales",
                       quoted(to_string(attention_.dtype))))
        .help = "add `quantize per_tensor;`, which adds the inputs descale_q, descale_k, ..";
  }

  void report_wide(const QuantizeClauses& clauses) {
    const std::string_view type = to_string(attention_.dtype);
    const auto* given =
        clauses.dtype ? &std::get<ast::DtypeClause>(clauses.dtype->body).dtype.text : nullptr;
    if (given != nullptr && *given != type) return;  // it was reported
    report(Code::no_scales, clauses.quantize->keyword.span,
           fmt::format("`quantize` is for 8-bit tensors, but the type is {}", quoted(type)))
        .help = "write `dtype e4m3;`, or remove `quantize`";
  }

  bool set_way(const ast::QuantizeClause& clause) {
    const std::string& way = clause.by.text;
    if (way == kPerTensor) return true;
    if (contains(kBlocks, way)) {
      report(Code::not_built_yet, clause.by.span, "scales of blocks are not implemented yet").help =
          "use `per_tensor`";
      return false;
    }
    const auto* here = std::ranges::find(kOtherWays, way, &OtherWay::name);
    report(Code::bad_choice, clause.by.span,
           fmt::format("{} is not a way to scale tensors", quoted(way)))
        .help = here != std::end(kOtherWays) ? std::string(here->help) : "expected `per_tensor`";
    return false;
  }

  void check_sigmoid(support::Span span) {
    if (!attention_.is_sigmoid()) return;
    report(Code::not_available_here, span, "`quantize` is not available beside `normalize sigmoid`")
        .help = "remove `normalize sigmoid`, or use `dtype bf16;`";
  }

  bool is_new(const ast::Name& name) {
    if (seen_.insert(name.text).second) return true;
    report(Code::duplicate_name, name.span, fmt::format("{} is listed twice", quoted(name.text)));
    return false;
  }

  void set_type(const ast::QuantizeEntry& entry) {
    const std::string& name = entry.name.text;
    const auto* typed = std::ranges::find(kTyped, name, &Typed::name);
    if (typed == std::end(kTyped)) return report_untyped(entry.name);
    const auto type = parse_dtype(entry.dtype->text);
    const bool is_half = type == DType::bf16 || type == DType::f16;
    if (type && (is_fp8(*type) || (typed->may_be_half && is_half))) {
      (*attention_.quantize).*(typed->type) = *type;
      return;
    }
    const std::string_view here = type_elsewhere(entry.dtype->text);
    report(Code::bad_choice, entry.dtype->span,
           fmt::format("{} cannot be {}", quoted(name), quoted(entry.dtype->text)))
        .help = !here.empty()        ? fmt::format("did you mean {}?", quoted(here))
                : typed->may_be_half ? "expected `e4m3`, `e5m2`, `bf16` or `f16`"
                                     : "expected `e4m3` or `e5m2`";
  }

  void report_untyped(const ast::Name& name) {
    auto& diagnostic = report(Code::bad_choice, name.span,
                              fmt::format("the clause gives {} no type", quoted(name.text)));
    if (contains(input_names(), name.text)) {
      diagnostic.help = "q, k and v have the type of the `dtype` clause";
    } else if (name.text == "dq" || name.text == "dk" || name.text == "dv") {
      diagnostic.help = "the type of dq, dk and dv is written `gradients: e5m2`";
    } else if (ir::is_scale(name.text)) {
      diagnostic.help = fmt::format("scales are f32; a default is written `{} = 0.5`", name.text);
    } else {
      diagnostic.help = "it may give those of `o`, `do` and `gradients`";
    }
  }

  void reserve_names() {
    for (const ast::Clause& clause : spec_.clauses) {
      const ast::Name* name = nullptr;
      if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) name = &tensor->name;
      if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) name = &param->name;
      if (name == nullptr || !(ir::is_scale(name->text) || ir::is_amax(name->text))) continue;
      report(Code::reserved_name, name->span,
             fmt::format("{} is a reserved name beside `quantize`", quoted(name->text)))
          .help = ir::is_scale(name->text) ? "`quantize` declares the scales itself"
                                           : "choose another name";
    }
  }

  void declare(std::string_view name) {
    ir::Dag& dag = attention_.dag;
    ir::CapturedTensor tensor{std::string(name), DType::f32, {dag.integer(1)}, {}};
    tensor.fallback = dag.real(1.0);
    attention_.tensors.push_back(std::move(tensor));
  }

  void set_default(const ast::QuantizeEntry& entry) {
    const auto tensor = std::ranges::find(attention_.tensors, std::string_view(entry.name.text),
                                          &ir::CapturedTensor::name);
    if (tensor == attention_.tensors.end()) return report_no_scale(entry.name);
    const std::vector<ir::ExprId> extents = tensor->extents;
    const auto value = scope_.check_default(*entry.fallback, kDefaultSite, extents);
    if (!value) return;
    const ir::ExprId id = value->type == ir::Type::integer
                              ? attention_.dag.add(ir::Op::to_real_, {value->id}, quantize_pos())
                              : value->id;
    if (value->type == ir::Type::boolean &&
        !scope_.has_type(*entry.fallback, *value, ir::Type::real, kDefaultSite)) {
      return;
    }
    const auto known = ir::fold_real(attention_.dag, id);
    if (known && !(*known > 0 && std::isfinite(*known))) {
      report(Code::bad_value, entry.fallback->span, fmt::format("the scale is {}", *known)).help =
          "a scale is positive and finite";
      return;
    }
    tensor->fallback = id;
  }

  ir::SourcePos quantize_pos() const { return attention_.quantize->pos; }

  void report_no_scale(const ast::Name& name) {
    auto& diagnostic = report(Code::bad_choice, name.span,
                              fmt::format("there is no scale {} here", quoted(name.text)));
    const auto* scale = std::ranges::find(ir::kScales, name.text, &ir::Scale::name);
    if (scale != std::end(ir::kScales)) {
      diagnostic.help = scale->backward && attention_.gradients.empty()
                            ? "it is one of the backward's, and the spec has no `grad` clause"
                            : fmt::format("{} is {}, which has no scale", scale->of,
                                          to_string(attention_.dtype_of(scale->of)));
    } else if (ir::is_amax(name.text)) {
      diagnostic.help = fmt::format("it is an output: `outputs o, {};`", name.text);
    } else if (std::ranges::find(kTyped, name.text, &Typed::name) != std::end(kTyped)) {
      diagnostic.help = fmt::format("a type is written `{}: bf16`", name.text);
    } else {
      std::vector<std::string_view> names;
      for (const ir::Scale& each : ir::kScales) {
        if (attention_.has(each)) names.push_back(each.name);
      }
      const std::string_view close = support::nearest(name.text, names);
      diagnostic.help = close.empty() ? "the scales are " + support::one_of(names)
                                      : fmt::format("did you mean {}?", quoted(close));
    }
  }

  const ast::Spec& spec_;
  ir::Attention& attention_;
  Scope& scope_;
  diag::Sink& sink_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace

QuantizeClauses find_quantize(const ast::Spec& spec) {
  QuantizeClauses found;
  const auto keep_first = [](const ast::Clause*& kept, const ast::Clause& clause) {
    if (kept == nullptr) kept = &clause;
  };
  for (const ast::Clause& clause : spec.clauses) {
    if (std::holds_alternative<ast::QuantizeClause>(clause.body))
      keep_first(found.quantize, clause);
    if (std::holds_alternative<ast::DtypeClause>(clause.body)) keep_first(found.dtype, clause);
    if (std::holds_alternative<ast::GradClause>(clause.body)) keep_first(found.grad, clause);
  }
  return found;
}

void set_quantize(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink) {
  Quantization(spec, attention, scope, sink).set();
}

}  // namespace attn::sema
