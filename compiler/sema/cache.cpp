#include "compiler/sema/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "compiler/ast/print.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/sema/names.h"
#include "compiler/sema/quantize.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::LayoutKind;
using support::quoted;

constexpr std::string_view kCache = "kv";
constexpr std::string_view kTypes = "k: e4m3, v: e4m3";

const ast::QuantizeClause* quantize_of(const QuantizeClauses& clauses) {
  return clauses.quantize ? &std::get<ast::QuantizeClause>(clauses.quantize->body) : nullptr;
}

const ast::DtypeClause* dtype_of(const QuantizeClauses& clauses) {
  return clauses.dtype ? &std::get<ast::DtypeClause>(clauses.dtype->body) : nullptr;
}

// `kv(tensor)`, `kv(head)`, ..
std::string all_ways() {
  std::vector<std::string> ways;
  for (const ir::CacheScaleInfo& each : ir::cache_scales())
    ways.push_back(fmt::format("kv({})", each.name));
  const std::vector<std::string_view> words(ways.begin(), ways.end());
  return support::one_of(words);
}

class Caches {
 public:
  Caches(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink)
      : spec_(spec), attention_(attention), scope_(scope), sink_(sink) {}

  void set(const QuantizeClauses& clauses) {
    const ast::DtypeClause* types = dtype_of(clauses);
    const ast::QuantizeClause* quantize = quantize_of(clauses);
    const bool has_types = types != nullptr && !types->entries.empty();
    if (quantize == nullptr || quantize->by.text != kCache)
      return report_no_scales(*types, quantize);
    if (is_fp8(attention_.dtype)) return report_narrow_queries(types->dtype);
    if (!has_types) return report_no_types(*clauses.quantize);
    const auto by = way_of(*quantize);
    ir::Cache cache;
    if (!set_types(*types, cache) || !by) return;
    cache.by = *by;
    const support::Place at = sink_.source().place(clauses.quantize->keyword.span.begin);
    cache.pos = {at.line, at.column};
    attention_.cache = cache;
    check_others(*clauses.quantize);
    reserve_names();
    for (const std::string_view name : {ir::kKeyScale, ir::kValueScale}) declare(name);
    for (const ast::QuantizeEntry& entry : quantize->entries) set_default(entry);
  }

 private:
  diag::Diagnostic& report(Code code, support::Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  std::string hint(std::string_view text) const { return ast::hint_for(sink_.source(), text); }

  void report_no_scales(const ast::DtypeClause& types, const ast::QuantizeClause* quantize) {
    if (quantize != nullptr) {
      report(Code::no_scales, types.entries.front().tensor.span,
             fmt::format("{} has no types of single tensors", quoted(quantize->by.text)))
          .help = hint("keys and values of 8 bits beside queries of 16 have `quantize kv(head);`");
      return;
    }
    report(Code::no_scales, types.entries.front().tensor.span,
           "keys and values of 8 bits need a `quantize` clause: they have scales")
        .help =
        hint("add `quantize kv(head);`, which adds the inputs k_scale and v_scale: " + all_ways());
  }

  void report_narrow_queries(const ast::Name& type) {
    report(Code::not_available_here, type.span,
           fmt::format("`quantize kv` is beside queries of 16 bits, and these are {}",
                       quoted(type.text)))
        .help = hint(fmt::format("write `dtype bf16, {};`, or `quantize per_tensor;`", kTypes));
  }

  void report_no_types(const ast::Clause& quantize) {
    report(Code::no_scales, quantize.keyword.span,
           fmt::format("`quantize kv` is for keys and values of 8 bits, but their type is {}",
                       quoted(to_string(attention_.dtype))))
        .help = hint(fmt::format("write `dtype {}, {};`, or remove `quantize`",
                                 to_string(attention_.dtype), kTypes));
  }

  std::optional<ir::CacheScale> way_of(const ast::QuantizeClause& clause) {
    if (!clause.of) {
      report(Code::bad_choice, clause.by.span, "`kv` does not say what has a scale").help =
          "expected " + all_ways();
      return std::nullopt;
    }
    if (const auto by = ir::parse_cache_scale(clause.of->text)) return by;
    std::vector<std::string_view> words;
    for (const ir::CacheScaleInfo& each : ir::cache_scales()) words.push_back(each.name);
    auto& diagnostic = report(Code::bad_choice, clause.of->span,
                              fmt::format("{} has no scales of its own", quoted(clause.of->text)));
    expect_one_of(words, clause.of->text, diagnostic, clause.of->span);
    return std::nullopt;
  }

  // Both types, each once.
  bool set_types(const ast::DtypeClause& clause, ir::Cache& cache) {
    std::set<std::string, std::less<>> seen;
    bool fits = true;
    for (const ast::DtypeEntry& entry : clause.entries) {
      if (!seen.insert(entry.tensor.text).second) {
        report(Code::duplicate_name, entry.tensor.span,
               fmt::format("{} is listed twice", quoted(entry.tensor.text)));
        fits = false;
      } else {
        fits &= set_type(entry, cache);
      }
    }
    for (const char* name : {"k", "v"}) {
      if (!fits || seen.contains(name)) continue;
      report(Code::bad_choice, clause.entries.front().tensor.span,
             fmt::format("{} has no type of its own, and both `k` and `v` need one", quoted(name)))
          .help = hint(fmt::format("write `dtype {}, {};`", clause.dtype.text, kTypes));
      fits = false;
    }
    return fits;
  }

  bool set_type(const ast::DtypeEntry& entry, ir::Cache& cache) {
    const std::string& name = entry.tensor.text;
    if (name != "k" && name != "v") {
      report(Code::bad_choice, entry.tensor.span,
             fmt::format("the clause gives {} no type of its own", quoted(name)))
          .help = "it gives `k` and `v` theirs; q and o have that of all";
      return false;
    }
    const auto type = parse_dtype(entry.dtype.text);
    if (type && ir::is_cache_type(*type)) {
      (name == "k" ? cache.k : cache.v) = *type;
      return true;
    }
    const std::string_view words[] = {"e4m3", "e5m2", "i8"};
    const std::string_view here = type_elsewhere(entry.dtype.text);
    auto& diagnostic =
        report(Code::bad_choice, entry.dtype.span,
               fmt::format("{} cannot be {}", quoted(name), quoted(entry.dtype.text)));
    if (contains(words, here))
      did_you_mean(here).put(diagnostic, entry.dtype.span);
    else
      expect_one_of(words, type ? "" : entry.dtype.text, diagnostic, entry.dtype.span);
    return false;
  }

  // Clauses that are not available beside a cache.
  void check_others(const ast::Clause& quantize) {
    for (const ast::Clause& clause : spec_.clauses) {
      const auto* prologue = std::get_if<ast::PrologueClause>(&clause.body);
      if (prologue != nullptr && prologue->tensor.text == "k") {
        report(Code::not_available_here, prologue->tensor.span,
               "keys of 8 bits have no prologue: what it makes would be rounded again, by a scale "
               "that no clause declares")
            .help = "compute it before keys are rounded: caches keep what comes after it";
      }
      if (std::holds_alternative<ast::GradClause>(clause.body)) {
        report(Code::not_available_here, clause.keyword.span,
               "`grad` is not available beside `quantize kv`: a cache is not trained")
            .help = hint("remove `grad`, or train with `dtype bf16;`");
      }
    }
    for (const char* name : {"q", "k"}) {
      const LayoutKind kind = attention_.layouts.find(name)->second.kind;
      if (kind != LayoutKind::packed_qkv && kind != LayoutKind::packed_kv) continue;
      report(Code::bad_layout, quantize.keyword.span,
             fmt::format("{} is {}, and elements of one tensor have one type and scale",
                         quoted(name), quoted(to_string(kind))))
          .help = "use `bshd`, `bhsd`, `thd` or `paged(page = 16)`";
      return;
    }
  }

  void reserve_names() {
    for (const ast::Clause& clause : spec_.clauses) {
      const ast::Name* name = nullptr;
      if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) name = &tensor->name;
      if (const auto* param = std::get_if<ast::ParamClause>(&clause.body)) name = &param->name;
      if (name == nullptr || !ir::is_cache_scale(name->text)) continue;
      report(Code::reserved_name, name->span,
             fmt::format("{} is a reserved name beside `quantize`", quoted(name->text)))
          .help = "`quantize` declares the scales itself";
    }
  }

  void declare(std::string_view name) {
    ir::CapturedTensor tensor{
        std::string(name), DType::f32, ir::extents_of_scales(attention_.cache->by, attention_), {}};
    tensor.fallback = attention_.dag.real(1.0);
    attention_.tensors.push_back(std::move(tensor));
  }

  void set_default(const ast::QuantizeEntry& entry) {
    const std::string& name = entry.name.text;
    if (entry.dtype) {
      report(Code::bad_choice, entry.name.span,
             fmt::format("the clause gives {} no type", quoted(name)))
          .help =
          hint(fmt::format("types of keys and values are written `dtype bf16, {};`", kTypes));
      return;
    }
    if (!ir::is_cache_scale(name)) {
      report(Code::bad_choice, entry.name.span,
             fmt::format("there is no scale {} here", quoted(name)))
          .help = "the scales are `k_scale` and `v_scale`";
      return;
    }
    if (!seen_.insert(name).second) {
      report(Code::duplicate_name, entry.name.span,
             fmt::format("{} is listed twice", quoted(name)));
      return;
    }
    const auto tensor = std::ranges::find(attention_.tensors, name, &ir::CapturedTensor::name);
    const auto id = default_of_scale(*entry.fallback, *tensor, attention_.cache->pos, spec_,
                                     attention_, scope_, sink_);
    if (id) tensor->fallback = *id;
  }

  const ast::Spec& spec_;
  ir::Attention& attention_;
  Scope& scope_;
  diag::Sink& sink_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace

bool quantizes_cache(const ast::Spec& spec) {
  const ast::QuantizeClause* quantize = quantize_of(find_quantize(spec));
  return quantize != nullptr && quantize->by.text == kCache;
}

bool set_cache(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink) {
  const QuantizeClauses clauses = find_quantize(spec);
  const ast::DtypeClause* types = dtype_of(clauses);
  if (!quantizes_cache(spec) && (types == nullptr || types->entries.empty())) return false;
  Caches(spec, attention, scope, sink).set(clauses);
  return true;
}

}  // namespace attn::sema
