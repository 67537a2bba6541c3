#include "compiler/sema/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "compiler/ast/print.h"
#include "compiler/ir/block_scales.h"
#include "compiler/sema/blocks.h"
#include "compiler/sema/cache.h"
#include "compiler/sema/names.h"
#include "compiler/sema/weights.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using support::quoted;

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
    {"tensor", "it is written `per_tensor`; of keys and values alone `kv(tensor)`"},
    {"block", "blocks of 32 elements are `mxfp8`"},
    {"blocks", "blocks of 32 elements are `mxfp8`"},
    {"mx", "it is written `mxfp8`"},
    {"microscaling", "it is written `mxfp8`"},
    {"mxfp8_block_scaling", "it is written `mxfp8`"},
};
// Ways of others that are not implemented.
constexpr std::string_view kNotBuilt[] = {"nvfp4", "mxfp4", "blockwise", "float8_block_scaling"};

// A tensor whose type the clause may give.
struct Typed {
  std::string_view name;
  DType ir::Quantize::*type;
  bool is_result;  // may have 16 bits, with mxfp8 always has
};
constexpr Typed kTyped[] = {{"o", &ir::Quantize::o, true},
                            {"do", &ir::Quantize::d_o, false},
                            {"gradients", &ir::Quantize::gradients, true}};

// What a quantized attention must not have, and how that is said.
class QuantizeReports {
 public:
  QuantizeReports(ir::Attention& attention, diag::Sink& sink)
      : attention_(attention), sink_(sink) {}

 protected:
  bool is_mxfp8() const { return attention_.is_mxfp8(); }
  bool trains() const { return !attention_.gradients.empty(); }

  diag::Diagnostic& report(Code code, support::Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  std::string hint(std::string_view text) const { return ast::hint_for(sink_.source(), text); }

  void check_absent(const QuantizeClauses& clauses) {
    if (!is_fp8(attention_.dtype)) return;
    report(Code::no_scales, std::get<ast::DtypeClause>(clauses.dtype->body).dtype.span,
           fmt::format("{} needs a `quantize` clause: 8-bit tensors have scales",
                       quoted(to_string(attention_.dtype))))
        .help = hint(
        "add `quantize per_tensor;`, which adds the inputs descale_q, descale_k, .., or "
        "`quantize mxfp8;`");
  }

  void report_wide(const QuantizeClauses& clauses) {
    const std::string_view type = to_string(attention_.dtype);
    const auto* given =
        clauses.dtype ? &std::get<ast::DtypeClause>(clauses.dtype->body).dtype.text : nullptr;
    if (given != nullptr && *given != type) return;  // it was reported
    report(Code::no_scales, clauses.quantize->keyword.span,
           fmt::format("`quantize` is for 8-bit tensors, but the type is {}", quoted(type)))
        .help = hint("write `dtype e4m3;`, or remove `quantize`");
  }

  std::optional<ir::Scaling> way_of(const ast::QuantizeClause& clause) {
    const std::string& way = clause.by.text;
    if (const auto known = ir::parse_scaling(way)) return known;
    if (contains(kNotBuilt, way)) {
      report(Code::not_built_yet, clause.by.span,
             fmt::format("{} is not implemented yet", quoted(way)))
          .help = "use `per_tensor` or `mxfp8`";
      return std::nullopt;
    }
    const auto* here = std::ranges::find(kOtherWays, way, &OtherWay::name);
    report(Code::bad_choice, clause.by.span,
           fmt::format("{} is not a way to scale tensors", quoted(way)))
        .help = here != std::end(kOtherWays) ? std::string(here->help)
                                             : "expected `per_tensor`, `mxfp8` or `kv(..)`";
    return std::nullopt;
  }

  void report_untyped(const ast::Name& name) {
    auto& diagnostic = report(Code::bad_choice, name.span,
                              fmt::format("the clause gives {} no type", quoted(name.text)));
    if (contains(input_names(), name.text)) {
      diagnostic.help = "q, k and v have the type of the `dtype` clause";
    } else if (name.text == "dq" || name.text == "dk" || name.text == "dv") {
      diagnostic.help = "the type of dq, dk and dv is written `gradients: e5m2`";
    } else if (ir::find_copy(name.text) != nullptr) {
      diagnostic.help = "a copy has the type of what it copies, and `do_f16` that of o";
    } else if (ir::is_scale(name.text)) {
      diagnostic.help = fmt::format("{} {}; a default is written `{} = 0.5`",
                                    is_mxfp8() ? "scales of blocks are" : "scales are",
                                    is_mxfp8() ? "e8m0" : "f32", name.text);
    } else {
      diagnostic.help = "it may give those of `o`, `do` and `gradients`";
    }
  }

  void report_no_scale(const ast::Name& name) {
    auto& diagnostic = report(Code::bad_choice, name.span,
                              fmt::format("there is no scale {} here", quoted(name.text)));
    if (const std::string why = why_no_scale(name.text); !why.empty()) {
      diagnostic.help = why;
    } else if (ir::is_amax(name.text)) {
      diagnostic.help = hint(fmt::format("it is an output: `outputs o, {};`", name.text));
    } else if (std::ranges::find(kTyped, name.text, &Typed::name) != std::end(kTyped)) {
      diagnostic.help = fmt::format("a type is written `{}: bf16`", name.text);
    } else {
      const std::vector<std::string_view> names = scale_names();
      const std::string_view close = support::nearest(name.text, names);
      diagnostic.help = close.empty() ? "the scales are " + support::one_of(names)
                                      : fmt::format("did you mean {}?", quoted(close));
    }
  }

  // Why the attention lacks a scale that others have; "" for a name that is none anywhere.
  std::string why_no_scale(std::string_view name) const {
    constexpr const char* kNoGradients =
        "it is one of the backward's, and the spec has no `grad` clause";
    const auto* scale = std::ranges::find(ir::kScales, name, &ir::Scale::name);
    const bool is_scale = scale != std::end(ir::kScales);
    const bool is_block = ir::find_block_scale(name) != nullptr;
    if (is_mxfp8()) {
      if (ir::find_copy(name)) return "it is an input of the backward, and has no default";
      if (is_block) return kNoGradients;
      return is_scale ? "`mxfp8` has scales of q, k, v and do alone: results have 16 bits, and "
                        "kernels scale the weights themselves"
                      : "";
    }
    if (!is_scale) return is_block ? "it is one of `quantize mxfp8`" : "";
    if (scale->backward && !trains()) return kNoGradients;
    return fmt::format("{} is {}, which has no scale", scale->of,
                       to_string(attention_.dtype_of(scale->of)));
  }

  std::vector<std::string_view> scale_names() const {
    std::vector<std::string_view> names;
    for (const ir::CapturedTensor& tensor : attention_.tensors) {
      if (ir::is_scale(tensor.name)) names.push_back(tensor.name);
    }
    return names;
  }

  ir::SourcePos quantize_pos() const { return attention_.quantize->pos; }

  ir::Attention& attention_;
  diag::Sink& sink_;
};

class Quantization : private QuantizeReports {
 public:
  Quantization(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink)
      : QuantizeReports(attention, sink), spec_(spec), scope_(scope) {}

  void set() {
    const QuantizeClauses clauses = find_quantize(spec_);
    if (set_cache(spec_, attention_, scope_, sink_)) return;
    if (clauses.quantize == nullptr) return check_absent(clauses);
    const auto& clause = std::get<ast::QuantizeClause>(clauses.quantize->body);
    if (!is_fp8(attention_.dtype)) return report_wide(clauses);
    const std::optional<ir::Scaling> way = way_of(clause);
    if (!way) return;
    if (clause.of) {
      report(Code::bad_choice, clause.of->span,
             fmt::format("{} says itself what has a scale", quoted(clause.by.text)))
          .help = hint(fmt::format("write `quantize {};`", clause.by.text));
    }
    ir::Quantize& quantize = attention_.quantize.emplace();
    quantize.by = *way;
    quantize.o = quantize.d_o = quantize.gradients = attention_.dtype;
    if (is_mxfp8()) quantize.o = quantize.gradients = DType::bf16;
    const support::Place at = sink_.source().place(clauses.quantize->keyword.span.begin);
    quantize.pos = {at.line, at.column};
    for (const ast::QuantizeEntry& entry : clause.entries) {
      if (entry.dtype && is_new(entry.name)) set_type(entry);
    }
    // Which tensors have gradients is checked later, once all are declared.
    if (clauses.grad != nullptr) attention_.gradients = {"q"};
    reserve_names();
    if (is_mxfp8()) {
      check_blocks(spec_, *clauses.quantize, attention_, sink_);
      declare_blocks(trains(), attention_);
    }
    for (const ir::Scale& scale : ir::kScales) {
      if (attention_.has(scale)) declare(scale.name);
    }
    for (const ast::QuantizeEntry& entry : clause.entries) {
      if (entry.fallback && is_new(entry.name)) set_default(entry);
    }
    attention_.gradients.clear();
  }

 private:
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
    const bool may_be_narrow = !(typed->is_result && is_mxfp8());
    if (type && ((is_fp8(*type) && may_be_narrow) || (typed->is_result && is_half))) {
      (*attention_.quantize).*(typed->type) = *type;
      return;
    }
    const std::string_view here = type_elsewhere(entry.dtype->text);
    report(Code::bad_choice, entry.dtype->span,
           fmt::format("{} cannot be {}", quoted(name), quoted(entry.dtype->text)))
        .help = !here.empty()    ? fmt::format("did you mean {}?", quoted(here))
                : !may_be_narrow ? "expected `bf16` or `f16`: with `mxfp8`, results have no scales"
                : typed->is_result ? "expected `e4m3`, `e5m2`, `bf16` or `f16`"
                                   : "expected `e4m3` or `e5m2`";
  }

  void reserve_names() {
    for (const ast::Clause& clause : spec_.clauses) {
      const ast::Name* name = nullptr;
      if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) name = &tensor->name;
      if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) name = &param->name;
      if (name == nullptr || !is_reserved(name->text)) continue;
      report(Code::reserved_name, name->span,
             fmt::format("{} is a reserved name beside `quantize`", quoted(name->text)))
          .help = ir::is_scale(name->text) ? "`quantize` declares the scales itself"
                                           : "choose another name";
    }
  }

  bool is_reserved(std::string_view name) const {
    const bool is_copy = is_mxfp8() && trains() && ir::find_copy(name) != nullptr;
    return ir::is_scale(name) || ir::is_amax(name) || is_copy;
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
    if (tensor == attention_.tensors.end() || !ir::is_scale(tensor->name)) {
      return report_no_scale(entry.name);
    }
    const auto id = default_of_scale(*entry.fallback, *tensor, quantize_pos(), spec_, attention_,
                                     scope_, sink_);
    if (!id) return;
    const bool is_replaced = spec_.replaced.contains(tensor->name);
    const auto known = is_replaced ? std::nullopt : ir::fold_real(attention_.dag, *id);
    if (known && is_mxfp8() && !is_e8m0(*known)) {
      report(Code::bad_value, entry.fallback->span,
             fmt::format("the scale is {}, which e8m0 cannot hold", *known))
          .help = "the scale of a block is a power of two, from 2 ** -127 to 2 ** 127";
      return;
    }
    tensor->fallback = *id;
  }

  const ast::Spec& spec_;
  Scope& scope_;
  std::set<std::string, std::less<>> seen_;
};

constexpr std::string_view kScaleOfWeights = "scale_s";

// The entry that gives the scale a default; null if there is none.
const ast::QuantizeEntry* default_of(const ast::Spec& spec, std::string_view scale) {
  const ast::Clause* const clause = find_quantize(spec).quantize;
  if (clause == nullptr) return nullptr;
  for (const ast::QuantizeEntry& entry : std::get<ast::QuantizeClause>(clause->body).entries) {
    if (entry.name.text == scale && entry.fallback) return &entry;
  }
  return nullptr;
}

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

std::optional<ir::ExprId> default_of_scale(const ast::Expr& expr, const ir::CapturedTensor& scale,
                                           ir::SourcePos pos, const ast::Spec& spec,
                                           ir::Attention& attention, Scope& scope,
                                           diag::Sink& sink) {
  const std::vector<ir::ExprId> extents = scale.extents;
  const bool is_replaced = spec.replaced.contains(scale.name);
  const auto value = scope.check_default(expr, kDefaultSite, extents, is_replaced);
  if (!value) return std::nullopt;
  if (value->type == ir::Type::boolean &&
      !scope.has_type(expr, *value, ir::Type::real, kDefaultSite)) {
    return std::nullopt;
  }
  const ir::ExprId id = ir::is_integral(value->type)
                            ? attention.dag.add(ir::Op::to_real_, {value->id}, pos)
                            : value->id;
  const auto known = is_replaced ? std::nullopt : ir::fold_real(attention.dag, id);
  if (!known || (*known > 0 && std::isfinite(*known))) return id;
  sink.report(Code::bad_value, expr.span, fmt::format("the scale is {}", *known)).help =
      "a scale is positive and finite";
  return std::nullopt;
}

void set_quantize(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink) {
  Quantization(spec, attention, scope, sink).set();
}

namespace {

// The value, rounded down to six digits.
double rounded_down(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 5);
  return std::floor(value / unit) * unit;
}

// Dropout's scale for kept weights.
double kept_weight(const ir::Attention& attention) {
  return attention.dropout ? 1 / (1 - attention.dropout->probability) : 1;
}

const ast::Expr* dropout_of(const ast::Spec& spec) {
  for (const ast::Clause& clause : spec.clauses) {
    const auto* dropout = std::get_if<ast::DropoutClause>(&clause.body);
    if (dropout != nullptr) return &dropout->probability;
  }
  return nullptr;
}

// Kernels of mxfp8 have scales of their own.
void check_kept_weights(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink) {
  const ast::Expr* const dropout = dropout_of(spec);
  const bool has_dv = std::ranges::find(attention.gradients, "v") != attention.gradients.end();
  const double scale = has_dv ? ir::kWeightScaleOfGradients : ir::kWeightScale;
  const double kept = kept_weight(attention), most = max_finite(attention.dtype);
  if (dropout == nullptr || kept * scale <= most) return;
  sink.report(Code::saturating_scale, dropout->span,
              fmt::format("the largest weights saturate: dropout multiplies weights by {:.5g}, "
                          "kernels of `mxfp8` by {}{}, and {} ends at {}",
                          kept, scale, has_dv ? " for dv" : "", quoted(to_string(attention.dtype)),
                          most))
      .help = fmt::format("choose at most {:.6g}", rounded_down(1 - scale / most));
}

void report_other_weights(const ast::Spec& spec, diag::Sink& sink) {
  const bool by_weight = find_weights(spec).weight != nullptr;
  const std::string by = quoted(by_weight ? "weight" : "normalize sigmoid");
  sink.report(Code::not_available_here, find_quantize(spec).quantize->keyword.span,
              fmt::format("`quantize` is not available beside {}", by))
      .help = ast::hint_for(sink.source(), fmt::format("remove {}, or use `dtype bf16;`", by));
}

}  // namespace

void check_weights(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink) {
  if (!attention.quantize) return;
  if (!attention.is_softmax()) return report_other_weights(spec, sink);
  if (attention.is_mxfp8()) return check_kept_weights(spec, attention, sink);
  const ir::CapturedTensor* scale = attention.find_tensor(kScaleOfWeights);
  const ast::QuantizeEntry* entry = default_of(spec, kScaleOfWeights);
  if (scale == nullptr || !scale->fallback || entry == nullptr) return;
  const auto value = ir::fold_real(attention.dag, *scale->fallback);
  const double kept = kept_weight(attention);
  const double most = max_finite(attention.dtype), most_scale = most / kept;
  if (!value || *value <= most_scale) return;
  const std::string dropped =
      kept == 1 ? "" : fmt::format(", dropout multiplies weights by {:.5g}", kept);
  sink.report(Code::saturating_scale, entry->fallback->span,
              fmt::format("the largest weights saturate: scale_s is {}{}, and {} ends at {}",
                          *value, dropped, quoted(to_string(attention.dtype)), most))
      .help = fmt::format("choose at most {:.6g}, such as `scale_s = {}`", rounded_down(most_scale),
                          std::exp2(std::floor(std::log2(most_scale))));
}

}  // namespace attn::sema
