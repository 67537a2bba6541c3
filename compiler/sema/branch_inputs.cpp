#include "compiler/sema/branch_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using support::quoted;

// The dims [B, H, S, D] of q, k or v; keys and their heads may be others in a branch.
std::array<Dim, 4> dims_of(std::string_view tensor) {
  if (tensor == "q") return {Dim::B, Dim::Hq, Dim::Sq, Dim::Dqk};
  return {Dim::B, Dim::Hkv, Dim::Skv, tensor == "k" ? Dim::Dqk : Dim::Dv};
}

bool may_differ(Dim dim) { return dim == Dim::Hkv || dim == Dim::Skv; }

ast::Expr number(const ast::Expr& at, std::int64_t value) {
  ast::Expr expr;
  expr.span = at.span;
  expr.head = at.head;
  expr.text = std::to_string(value);
  return expr;
}

}  // namespace

BranchInputs::BranchInputs(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink)
    : spec_(spec), sink_(sink) {
  diag::Sink unheard(sink.source());  // the whole spec reports it
  environment_ = make_environment(spec, bindings, unheard);
}

const ast::TensorClause* BranchInputs::find(const ast::Name& name) const {
  for (const ast::Clause& clause : spec_.clauses) {
    const auto* tensor = std::get_if<ast::TensorClause>(&clause.body);
    if (tensor != nullptr && tensor->name.text == name.text) return tensor;
  }
  std::vector<std::string_view> names;
  for (const ast::Clause& clause : spec_.clauses) {
    const auto* tensor = std::get_if<ast::TensorClause>(&clause.body);
    if (tensor != nullptr) names.push_back(tensor->name.text);
  }
  auto& diagnostic = sink_.report(Code::unknown_name, name.span,
                                  fmt::format("{} is not a tensor of the spec", quoted(name.text)));
  did_you_mean(support::nearest(name.text, names)).put(diagnostic, name.span);
  if (diagnostic.help.empty())
    diagnostic.help =
        "declare it with `tensor` or `learn`; leave out what the spec calls `q`, `k` or `v`";
  return nullptr;
}

std::optional<std::int64_t> BranchInputs::size_of(const ast::Expr& extent) const {
  diag::Sink unheard(sink_.source());
  const Known known = evaluate(
      extent,
      [&](const std::string& name, support::Span span) {
        return environment_.value_of(name, span, unheard);
      },
      unheard);
  return known.state == Known::State::value ? known.integer() : std::nullopt;
}

std::string BranchInputs::dtype() const {
  for (const ast::Clause& clause : spec_.clauses) {
    if (const auto* type = std::get_if<ast::DtypeClause>(&clause.body)) return type->dtype.text;
  }
  return "bf16";
}

std::string BranchInputs::declaration(const ast::BranchInput& input) const {
  std::vector<std::string_view> extents;
  for (const Dim dim : dims_of(input.tensor.text)) {
    const bool is_depth = environment_.head_dim && (dim == Dim::Dqk || dim == Dim::Dv);
    extents.push_back(is_depth ? "D" : to_string(dim));
  }
  return fmt::format("learn {}: {}[{}];", input.by.text, dtype(), fmt::join(extents, ", "));
}

diag::Diagnostic& BranchInputs::refuse_size(const ast::BranchInput& input, support::Span at,
                                            std::string what) const {
  auto& diagnostic = sink_.report(Code::bad_size, at, std::move(what));
  diagnostic.labels.push_back({input.by.span, fmt::format("read as {} here", input.tensor.text)});
  diagnostic.help = fmt::format("write `{}`{}", declaration(input),
                                input.tensor.text == "q" ? "" : ", with other keys if you like");
  return diagnostic;
}

// No keys are as many as k has, if it has none.
bool BranchInputs::check_size(const ast::BranchInput& input, Dim dim,
                              const ast::Expr& extent) const {
  const auto size = size_of(extent), wanted = environment_.dims.get(dim);
  const bool is_none = size && *size < 1 && !(dim == Dim::Skv && size == wanted);
  if (is_none) {
    refuse_size(input, extent.span, fmt::format("the size is {}", *size));
    return false;
  }
  if (may_differ(dim) || !size || !wanted || *size == *wanted) return true;
  refuse_size(input, extent.span,
              fmt::format("the size is {}, and {} of {} is {}", *size, to_string(dim),
                          quoted(input.tensor.text), *wanted));
  return false;
}

bool BranchInputs::fits(const ast::BranchInput& input, const ast::TensorClause& tensor) const {
  if (tensor.dtype.text != dtype()) {
    refuse_size(input, tensor.dtype.span,
                fmt::format("{} is of type {}, and q, k and v of {}", quoted(tensor.name.text),
                            tensor.dtype.text, dtype()));
    return false;
  }
  if (tensor.extents.size() != 4) {
    refuse_size(input, tensor.name.span,
                fmt::format("{} has {} dimensions, and {} has 4", quoted(tensor.name.text),
                            tensor.extents.size(), quoted(input.tensor.text)));
    return false;
  }
  const std::array<Dim, 4> dims = dims_of(input.tensor.text);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (!check_size(input, dims[i], tensor.extents[i])) return false;
  }
  return true;
}

// Lengths, and the rows that `align` moves, are by the keys of k.
bool BranchInputs::check_counts(const ast::BranchClause& clause, const GivenInputs& given) const {
  if (!given.counts_own_keys) return true;
  const auto refuse = [&](const ast::Name& at, std::string_view what, std::string_view label,
                          std::string_view help) {
    auto& diagnostic =
        sink_.report(Code::not_available_here, clause.name.span,
                     fmt::format("{}, and branch {} has its own", what, quoted(clause.name.text)));
    diagnostic.labels.push_back({at.span, std::string(label)});
    diagnostic.help = help;
    return false;
  };
  for (const ast::Clause& each : spec_.clauses) {
    if (const auto* lengths = std::get_if<ast::LengthsClause>(&each.body)) {
      const auto kv = std::ranges::find_if(
          lengths->entries, [](const ast::LengthsEntry& entry) { return entry.side.text == "kv"; });
      if (kv != lengths->entries.end()) {
        return refuse(kv->side, "`lengths kv` counts the keys of `k`", "of the keys of `k`",
                      "leave it out, and hide keys of each branch by a captured tensor, as in "
                      "`mask kv_idx < sizes[b];`");
      }
    }
    const auto* align = std::get_if<ast::AlignClause>(&each.body);
    if (align != nullptr && align->align.text == to_string(ir::Align::bottom_right)) {
      return refuse(align->align, "`align bottom_right` moves `q_idx` by the keys of `k`",
                    "by the keys of `k`",
                    "leave it out, and move rows where they are compared, as in `mask q_idx + Skv "
                    "- Sq >= kv_idx;`");
    }
  }
  return true;
}

bool BranchInputs::add(const ast::BranchInput& input, GivenInputs& given) const {
  const std::string& name = input.tensor.text;
  if (!contains(input_names(), name)) {
    sink_
        .report(Code::bad_choice, input.tensor.span,
                fmt::format("a branch has no input {}", quoted(name)))
        .help = "its inputs are `q`, `k` and `v`";
    return false;
  }
  const ast::TensorClause* tensor = find(input.by);
  if (tensor == nullptr) return false;
  if (!fits(input, *tensor)) return false;
  if (!given.names.emplace(name, input.by.text).second) {
    sink_.report(Code::duplicate_name, input.tensor.span,
                 fmt::format("{} is given twice", quoted(name)));
    return false;
  }
  if (name == "q") return true;
  const auto heads = size_of(tensor->extents[1]), keys = size_of(tensor->extents[2]);
  if (given.has_keys && (given.keys != keys || given.heads != heads)) {
    sink_.report(Code::bad_size, input.by.span, "k and v of a branch have other heads or keys")
        .help = "declare both with the same sizes";
    return false;
  }
  given.has_keys = true, given.keys = keys, given.heads = heads;
  const ast::Expr& extent = tensor->extents[2];
  const bool is_skv =
      keys ? keys == environment_.dims.get(Dim::Skv)
           : extent.kind == ast::ExprKind::name && extent.text == to_string(Dim::Skv);
  given.counts_own_keys |= !is_skv;
  return true;
}

std::optional<GivenInputs> BranchInputs::of(const ast::BranchClause& clause) const {
  GivenInputs given;
  bool all_fit = true;
  for (const ast::BranchInput& input : clause.inputs) all_fit = add(input, given) && all_fit;
  if (!all_fit) return std::nullopt;
  const bool has_both = given.names.contains("k") && given.names.contains("v");
  const auto is_usual = [&](Dim dim, const std::optional<std::int64_t>& size) {
    return size == environment_.dims.get(dim);
  };
  const bool differs =
      given.has_keys && !(is_usual(Dim::Skv, given.keys) && is_usual(Dim::Hkv, given.heads));
  if (differs && !has_both) {
    sink_.report(Code::bad_size, clause.name.span, "k and v of a branch have other heads or keys")
        .help =
        "give both, as in `k = k_far, v = v_far`, or declare what is given with `Hkv` heads and "
        "`Skv` keys";
    return std::nullopt;
  }
  if (given.heads && environment_.dims.get(Dim::Hq) &&
      *environment_.dims.get(Dim::Hq) % *given.heads != 0) {
    sink_.report(Code::bad_size, clause.name.span,
                 fmt::format("Hq = {} is not a multiple of the {} heads of k",
                             *environment_.dims.get(Dim::Hq), *given.heads));
    return std::nullopt;
  }
  if (!check_counts(clause, given)) return std::nullopt;
  return given;
}

void BranchInputs::apply(const GivenInputs& given, ast::Spec& part, Bindings& bindings) const {
  const bool has_sizes = given.has_keys;
  for (ast::Clause& clause : part.clauses) {
    if (auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      tensor->fallback.reset();
      for (ast::Expr& extent : tensor->extents) {
        if (const auto size = size_of(extent)) extent = number(extent, *size);
      }
    }
    auto* dims = std::get_if<ast::DimsClause>(&clause.body);
    if (dims == nullptr || !has_sizes) continue;
    std::erase_if(dims->entries, [](const ast::DimEntry& entry) {
      return entry.name.text == "Skv" || entry.name.text == "Hkv";
    });
    for (const auto& [name, size] : {std::pair("Skv", given.keys), std::pair("Hkv", given.heads)}) {
      ast::DimEntry& entry =
          dims->entries.emplace_back(ast::DimEntry{{name, clause.keyword.span}, {}, {}});
      ast::Expr at;
      at.span = at.head = clause.keyword.span;
      if (size) entry.size = number(at, *size);
    }
    bindings.erase("Skv");
    bindings.erase("Hkv");
  }
}

}  // namespace attn::sema
