#include "compiler/sema/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "compiler/sema/analyze.h"
#include "compiler/sema/names.h"
#include "compiler/sema/operations.h"
#include "compiler/sema/values.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using support::quoted;
using support::Span;

constexpr std::string_view kSizes = "a size is a positive 32-bit integer (only Skv may be 0)";

// Only Skv may be 0.
std::int64_t least(std::string_view dimension) { return dimension == "Skv" ? 0 : 1; }

bool fits_32_bits(const ast::Number& number) {
  const auto* value = std::get_if<std::int64_t>(&number);
  return !value || (*value >= -kLargest && *value <= kLargest);
}

std::optional<ast::Number> parse_binding(std::string_view text) {
  const bool negative = text.starts_with('-');
  return ast::parse_number(negative ? text.substr(1) : text, negative);
}

// What is bound to dimensions, and what was wrong with it.
class BoundDims {
 public:
  BoundDims(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink)
      : spec_(spec), bindings_(bindings), sink_(sink) {}

 protected:
  struct Listed {
    const ast::DimEntry* entry = nullptr;
    std::optional<std::int64_t> bound;  // by --bind
    std::optional<Known> size;          // once resolved
    bool resolving = false;
  };

  Listed& at(Dim dim) { return listed_[static_cast<std::size_t>(dim)]; }

  diag::Diagnostic& report(Code code, Span span, std::string message) {
    return sink_.report(code, span, std::move(message));
  }

  Known bound(const ast::SpecParameter& parameter, const std::string& text, const Known& standard) {
    std::optional<ast::Number> number = parse_binding(text);
    if (!number) return bad_binding(parameter.name, text, "expected a number");
    const bool given = standard.state == Known::State::value;
    const bool wants_real = given && std::holds_alternative<double>(standard.number);
    const bool wants_integer = given && !wants_real;
    const bool is_integer = std::holds_alternative<std::int64_t>(*number);
    if (wants_integer && !is_integer) {
      return bad_binding(parameter.name, text, "expected an integer, like its default");
    }
    if (wants_real && is_integer) number = static_cast<double>(std::get<std::int64_t>(*number));
    return Known::of(*number);
  }

  // Reports a bad binding at the name's declaration.
  Known bad_binding(const ast::Name& name, const std::string& text, std::string_view why,
                    std::string_view help = "") {
    report(Code::bad_binding, name.span,
           fmt::format("--bind {}={}: {}", support::printable(name.text), support::printable(text),
                       why))
        .help = help;
    return Known::poisoned();
  }

  void bind(const std::string& name, const std::string& text) {
    const std::vector<Dim> dims = dims_named(name);
    if (dims.empty()) {
      if (!environment_.parameters.contains(name)) unknown_binding(name, text);
      return;
    }
    const std::vector<std::string> sizes = listed_sizes(text);
    const bool several = sizes.size() > 1;
    const auto number = parse_binding(sizes.front());
    const auto* size = number && !several ? std::get_if<std::int64_t>(&*number) : nullptr;
    if (several && combinations_ > kMostCombinations) {
      too_many_bound();
      for (const Dim dim : dims) at(dim).size = Known::poisoned();
      return;
    }
    if (!size || *size < least(name) || *size > kLargest) {
      const ast::DimEntry* entry = at(dims.front()).entry;
      const support::Span place = entry ? entry->name.span : spec_.name.span;
      bad_binding({name, place}, text, several ? "expected one size" : kSizes,
                  several ? fmt::format("`attnc compile` takes several sizes, with at most {} "
                                        "combinations, and makes a plan for each",
                                        kMostCombinations)
                          : "");
      for (const Dim dim : dims) at(dim).size = Known::poisoned();
      return;
    }
    for (const Dim dim : dims) at(dim).bound = *size;  // Dqk and Dv come after D, and override it
  }

  // The number of combinations of bound sizes and of the sets of unbound dimensions.
  std::size_t count_combinations() const {
    constexpr std::size_t kEnough = 1'000'000;
    std::size_t count = 1;
    std::set<Dim> bound;
    for (const auto& [name, text] : bindings_) {
      const std::vector<Dim> dims = dims_named(name);
      bound.insert(dims.begin(), dims.end());
      if (!dims.empty()) count = std::min(count * listed_sizes(text).size(), kEnough);
    }
    for (const Dim dim : ir::kDims) {
      const ast::DimEntry* entry = listed_[static_cast<std::size_t>(dim)].entry;
      const bool is_second =
          dim == Dim::Dv && entry == listed_[static_cast<std::size_t>(Dim::Dqk)].entry;
      if (!entry || entry->set.empty() || bound.contains(dim) || is_second) continue;
      count = std::min(count * entry->set.size(), kEnough);
    }
    return count;
  }

  // Reports this only once.
  void too_many_bound() {
    if (std::exchange(said_too_many_, true)) return;
    report(Code::too_many_sizes, spec_.name.span,
           fmt::format("--bind gives {} combinations of sizes; at most {} are allowed",
                       combinations_, kMostCombinations))
        .help = "bind fewer sizes at a time";
  }

  void unknown_binding(const std::string& name, const std::string& text) {
    std::vector<std::string_view> candidates(dimension_names().begin(), dimension_names().end());
    for (const auto& [parameter, value] : environment_.parameters) candidates.push_back(parameter);
    const std::string shown = support::printable(name);
    auto& diagnostic = report(
        Code::unknown_binding, spec_.name.span,
        fmt::format("--bind {}: the spec has no dimension or parameter with this name", shown));
    diagnostic.help = dimension_suggestion(name, candidates).help;
    for (const ast::Clause& clause : spec_.clauses) {
      const auto* param = std::get_if<ast::ParamClause>(&clause.body);
      const auto* tensor = std::get_if<ast::TensorClause>(&clause.body);
      const auto* let = std::get_if<ast::LetClause>(&clause.body);
      if (let != nullptr && let->name.text == name) {
        diagnostic.labels.push_back({let->name.span, "a let"});
        diagnostic.help =
            fmt::format("a `let` is fixed: declare `attention {}({} = {}) {{` instead",
                        support::printable(spec_.name.text), shown, support::printable(text));
      }
      const ast::Name* declared = param ? &param->name : tensor ? &tensor->name : nullptr;
      if (declared == nullptr || declared->text != name) continue;
      diagnostic.labels.push_back({declared->span, param ? "a param" : "a tensor"});
      diagnostic.help = fmt::format("it is set at each call: `--in {}={}`", shown,
                                    param ? support::printable(text) : "@FILE.npy");
    }
  }

  const ast::Spec& spec_;
  const Bindings& bindings_;
  diag::Sink& sink_;
  Environment environment_;
  std::size_t combinations_ = 1;
  bool said_too_many_ = false;
  std::array<Listed, ir::kDims.size()> listed_;
};

// The sizes of dimensions, which may depend on each other.
class ResolvedDims : public BoundDims {
 public:
  using BoundDims::BoundDims;

 protected:
  Known resolve(Dim dim) {
    Listed& listed = at(dim);
    if (listed.size) return *listed.size;
    if (listed.bound) return *(listed.size = Known::of(*listed.bound));
    if (listed.resolving) {
      report_cycle(dim, listed.entry);
      return *(listed.size = Known::poisoned());
    }
    listed.resolving = true;
    const Known size = written(dim);
    if (!listed.size) listed.size = size;
    return *listed.size;
  }

  // Without an entry, the clause `values` says what it is.
  void report_cycle(Dim dim, const ast::DimEntry* entry) {
    const std::string name = entry ? entry->name.text : std::string(to_string(dim));
    const ast::Clause* values = entry ? nullptr : find_values(spec_);
    const Span span = entry    ? entry->name.span
                      : values ? std::get<ast::ValuesClause>(values->body).end.span
                               : spec_.name.span;
    auto& diagnostic = report(Code::dimension_cycle, span,
                              fmt::format("{} is defined in terms of itself", quoted(name)));
    if (values) diagnostic.help = fmt::format("give its number, or {} in `dims`", quoted(name));
  }

  Known written(Dim dim) {
    const ast::DimEntry* entry = at(dim).entry;
    if (!entry) {
      if (dim == Dim::Hkv) return same_as(dim, Dim::Hq);
      if (dim == Dim::Skv) return same_as(dim, Dim::Sq);
      if (dim == Dim::Dv) return values_of_keys();
    }
    if (entry && !entry->set.empty()) return first_of_set(dim, *entry);
    if (!entry || !entry->size) return Known::open(std::string(to_string(dim)));
    // For `D`, Dv and Dqk have the same entry: evaluate it, and report its errors, once.
    if (dim == Dim::Dv && entry->name.text == "D" && !at(Dim::Dqk).bound) return resolve(Dim::Dqk);
    const auto lookup = [&](const std::string& name, Span span) { return read(name, span); };
    return checked_size(*entry, *entry->size, evaluate(*entry->size, lookup, sink_));
  }

  // Dv where `dims` does not have it: that of `values`, or Dqk.
  Known values_of_keys() {
    const ast::Clause* clause = find_values(spec_);
    if (clause == nullptr) return same_as(Dim::Dv, Dim::Dqk);
    const ast::Expr& end = std::get<ast::ValuesClause>(clause->body).end;
    const auto lookup = [&](const std::string& name, Span span) { return read(name, span); };
    return checked_size({{"Dv", end.span}, {}, {}}, end, evaluate(end, lookup, sink_));
  }

  Known checked_size(const ast::DimEntry& entry, const ast::Expr& expr, const Known& size) {
    if (size.state != Known::State::value) return size;
    const auto value = size.integer();
    if (value && *value >= least(entry.name.text) && *value <= kLargest) return size;
    auto& diagnostic =
        report(Code::bad_size, expr.span,
               value ? fmt::format("the size of {} is {}", entry.name.text, *value)
                     : fmt::format("the size of {} is not an integer", entry.name.text));
    diagnostic.help = value ? std::string(kSizes) : "divide with `//`";
    return Known::poisoned();
  }

  // Elements may use only numbers and spec parameters, so that they are known before dimensions.
  Known first_of_set(Dim dim, const ast::DimEntry& entry) {
    if (dim == Dim::Dv && entry.name.text == "D" && !at(Dim::Dqk).bound) return resolve(Dim::Dqk);
    const auto lookup = [&](const std::string& name, Span span) {
      if (is_dimension_name(name)) {
        report(Code::not_available_here, span,
               fmt::format("{} cannot be used in a set of sizes", quoted(name)));
        return Known::poisoned();
      }
      return environment_.lookup(name, span, sink_);
    };
    std::vector<std::int64_t>& sizes = environment_.sets[entry.name.text];
    for (const ast::Expr& element : entry.set) {
      const Known size = checked_size(entry, element, evaluate(element, lookup, sink_));
      if (size.state != Known::State::value) return Known::poisoned();
      if (std::ranges::find(sizes, *size.integer()) == sizes.end()) {
        sizes.push_back(*size.integer());
      } else {
        report(Code::duplicate_name, element.span,
               fmt::format("{} is in the set twice", *size.integer()));
      }
    }
    return Known::of(sizes.front());
  }

  Known same_as(Dim dim, Dim other) {
    const Known size = resolve(other);
    return size.state == Known::State::open ? Known::open(std::string(to_string(dim))) : size;
  }

  Known read(const std::string& name, Span span) {
    const std::vector<Dim> dims = dims_named(name);
    if (dims.empty()) return environment_.lookup(name, span, sink_);
    return resolve(dims[0]);
  }

  void settle_head_dim() {
    const auto& qk = environment_.dims.get(Dim::Dqk);
    const auto& v = environment_.dims.get(Dim::Dv);
    const bool one_entry = at(Dim::Dqk).entry == at(Dim::Dv).entry || !at(Dim::Dv).entry;
    if (find_values(spec_) != nullptr && !(qk && v)) return;
    if (qk && v ? *qk == *v : one_entry) environment_.head_dim = Dim::Dqk;
  }

  void check_heads() {
    const auto& hq = environment_.dims.get(Dim::Hq);
    const auto& hkv = environment_.dims.get(Dim::Hkv);
    if (!hq || !hkv || *hq % *hkv == 0) return;
    const ast::DimEntry* q = at(Dim::Hq).entry;
    const ast::DimEntry* kv = at(Dim::Hkv).entry;
    auto& diagnostic = report(
        Code::heads_not_multiple, q ? q->name.span : spec_.name.span,
        fmt::format(
            "the number of query heads, {}, is not a multiple of the number of key heads, {}", *hq,
            *hkv));
    if (q && kv) diagnostic.labels.push_back({kv->name.span, "the key heads"});
    propose_heads(*hq, *hkv, kv, diagnostic);
  }

  // The numbers of key heads that fit, those nearest to the one given if there are many.
  void propose_heads(std::int64_t hq, std::int64_t hkv, const ast::DimEntry* entry,
                     diag::Diagnostic& diagnostic) const {
    constexpr std::size_t kMost = 8;
    if (hkv > hq && hkv % hq == 0) {
      diagnostic.help = fmt::format("exchange them: `Hq = {}, Hkv = {}`", hkv, hq);
      return;
    }
    std::vector<std::int64_t> divisors;
    for (std::int64_t one = 1; one * one <= hq; ++one) {
      if (hq % one != 0) continue;
      divisors.push_back(one);
      if (one * one != hq) divisors.push_back(hq / one);
    }
    const auto distance = [&](std::int64_t one) { return std::abs(one - hkv); };
    std::ranges::sort(divisors, {}, distance);
    divisors.resize(std::min(divisors.size(), kMost));
    std::ranges::sort(divisors);
    std::vector<std::string> texts;
    for (const std::int64_t one : divisors) texts.push_back(fmt::format("{}", one));
    const std::vector<std::string_view> words(texts.begin(), texts.end());
    diagnostic.help = fmt::format("with {} query heads, Hkv may be {}", hq, support::one_of(words));
    const bool is_number = entry && entry->size && entry->size->kind == ast::ExprKind::number;
    if (!is_number || bindings_.contains("Hkv")) return;
    for (const std::string& text : texts) diagnostic.add_replacement(entry->size->span, text);
  }
};

class Resolver : private ResolvedDims {
 public:
  using ResolvedDims::ResolvedDims;

  Environment run() {
    for (const ast::SpecParameter& parameter : spec_.parameters) add_parameter(parameter);
    for (const ast::Clause& clause : spec_.clauses) {
      const auto* dims = std::get_if<ast::DimsClause>(&clause.body);
      if (!dims) continue;
      for (const ast::DimEntry& entry : dims->entries) list(entry);
    }
    combinations_ = count_combinations();
    for (const auto& [name, text] : bindings_) bind(name, text);
    for (const Dim dim : ir::kDims) {
      const Known size = resolve(dim);
      if (const auto value = size.integer()) environment_.dims.set(dim, *value);
    }
    settle_head_dim();
    check_heads();
    check_sets();
    return std::move(environment_);
  }

 private:
  void add_parameter(const ast::SpecParameter& parameter) {
    const std::string& name = parameter.name.text;
    if (environment_.parameters.contains(name)) return;  // reported where names are declared
    Known value = default_of(parameter);
    if (const auto binding = bindings_.find(name); binding != bindings_.end()) {
      value = bound(parameter, binding->second, value);
    }
    if (value.state == Known::State::value && !fits_32_bits(value.number)) {
      report(Code::bad_number, parameter.name.span,
             fmt::format("the value of {} does not fit in 32 bits", quoted(name)));
      value = Known::poisoned();
    }
    environment_.parameters.emplace(name, value);
  }

  Known default_of(const ast::SpecParameter& parameter) {
    if (!parameter.value) {
      if (!bindings_.contains(parameter.name.text)) {
        report(Code::parameter_without_value, parameter.name.span,
               fmt::format("{} has no value", quoted(parameter.name.text)))
            .help = fmt::format("give a default, `{0} = 1`, or compile with `--bind {0}=1`",
                                parameter.name.text);
      }
      return Known::poisoned();
    }
    const auto lookup = [&](const std::string& name, Span span) {
      if (is_dimension_name(name)) {
        report(
            Code::not_available_here, span,
            fmt::format("{} cannot be used here: spec parameters are evaluated before dimensions",
                        quoted(name)));
        return Known::poisoned();
      }
      return environment_.lookup(name, span, sink_);
    };
    return evaluate(*parameter.value, lookup, sink_);
  }

  void list(const ast::DimEntry& entry) {
    const std::string& name = entry.name.text;
    const std::vector<Dim> dims = dims_named(name);
    if (dims.empty()) {
      auto& diagnostic = report(Code::unknown_dimension, entry.name.span,
                                fmt::format("{} is not a dimension of attention", quoted(name)));
      environment_.unknown.insert(name);
      dimension_suggestion(name, dimension_names()).put(diagnostic, entry.name.span);
      if (diagnostic.help.empty()) {
        diagnostic.help = "expected " + support::one_of(dimension_names());
      }
    }
    for (const Dim dim : dims) {
      if (const ast::DimEntry* before = at(dim).entry) {
        report(Code::duplicate_name, entry.name.span,
               fmt::format("{} is given twice", quoted(to_string(dim))))
            .labels.push_back({before->name.span, "first here"});
        return;
      }
      at(dim).entry = &entry;
    }
  }

  // Each combination of sizes requires another analysis of the text.
  void check_sets() {
    constexpr std::size_t kMostOfText = std::size_t{1} << 22;
    const std::size_t by_text = kMostOfText / std::max<std::size_t>(spec_.span.end, 1);
    const std::size_t most = std::clamp<std::size_t>(by_text, 4, kMostCombinations);
    std::size_t count = 1;
    for (const auto& [name, sizes] : environment_.sets) {
      count *= sizes.size();
      if (count <= most) continue;
      report(Code::too_many_sizes, spec_.name.span,
             fmt::format("the sets of sizes have more than {} combinations", most))
          .help = fmt::format("compile for one size at a time, for example with `--bind {}={}`",
                              name, sizes.front());
      return;
    }
  }
};

}  // namespace

Known Environment::lookup(const std::string& name, Span span, diag::Sink& sink) {
  if (parameters.contains(name)) used.insert(name);
  return value_of(name, span, sink);
}

Known Environment::value_of(const std::string& name, Span span, diag::Sink& sink) const {
  if (const auto found = parameters.find(name); found != parameters.end()) return found->second;
  if (const std::vector<Dim> named = dims_named(name); !named.empty()) {
    if (const auto size = dims.get(named[0])) return Known::of(*size);
    return Known::open(std::string(to_string(named[0])));
  }
  if (unknown.contains(name)) return Known::poisoned();
  if (is_bound_name(name)) {
    sink.report(Code::not_available_here, span, fmt::format("{} is not a constant", quoted(name)));
    return Known::poisoned();
  }
  std::vector<std::string_view> candidates(dimension_names().begin(), dimension_names().end());
  for (const auto& [parameter, value] : parameters) candidates.push_back(parameter);
  auto& diagnostic =
      sink.report(Code::unknown_name, span,
                  fmt::format("{} is not a dimension or spec parameter", quoted(name)));
  dimension_suggestion(name, candidates).put(diagnostic, span);
  return Known::poisoned();
}

std::vector<Dim> dims_named(std::string_view name) {
  if (name == "D") return {Dim::Dqk, Dim::Dv};
  const auto dim = ir::parse_dim(name);
  return dim ? std::vector{*dim} : std::vector<Dim>();
}

std::vector<std::string> listed_sizes(const std::string& text) {
  std::vector<std::string> sizes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string size = text.substr(at, end - at);
    if (std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(std::move(size));
    at = end + 1;
  }
  if (sizes.empty()) sizes.emplace_back();
  return sizes;
}

Environment make_environment(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink) {
  return Resolver(spec, bindings, sink).run();
}

}  // namespace attn::sema
