#include "tools/lsp/analysis.h"

#include <fmt/format.h>

#include <iterator>

#include "compiler/ast/parse.h"
#include "compiler/driver/driver.h"
#include "compiler/ir/bound.h"
#include "compiler/pictures/picture.h"
#include "compiler/pictures/terminal.h"
#include "tools/inputs.h"
#include "tools/spec.h"

namespace attn::tools::lsp {
namespace {

constexpr std::int64_t kColumns = 42;       // of a picture
constexpr std::size_t kMostMaskShares = 8;  // a share takes some milliseconds
// Expressions that the first analysis visits, at about a microsecond each.
constexpr std::uint64_t kMostWork = 30'000;

// The share of the first batch and head, and its picture.
Result<pictures::Picture> picture_of(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(ir::check_bound(attention));
  ATTN_ASSIGN(Inputs inputs, make_inputs(attention, {}, Missing::lifelike, Needs::masks));
  auto& [tensors, params] = inputs.values;
  const reference::Bindings values{
      {std::move_iterator(tensors.begin()), std::move_iterator(tensors.end())},
      {params.begin(), params.end()}};
  pictures::Options options;
  options.batch = options.head = 0;
  return pictures::picture_of(attention, values, pictures::for_terminal(options, kColumns, false));
}

std::string share_of(const Result<pictures::Picture>& picture) {
  if (!picture.ok() || picture->panels.empty()) return "";
  return pictures::share_text(picture->panels.front().cells.share);
}

// The attention with only this mask, and no lengths.
ir::Attention with_mask(ir::Attention attention, ir::ExprId mask) {
  attention.masks = {mask};
  attention.lengths_q = attention.lengths_kv = false;
  return attention;
}

std::vector<Span> mask_clauses(const ast::Spec& spec) {
  std::vector<Span> spans;
  for (const ast::Clause& clause : spec.clauses) {
    if (std::holds_alternative<ast::MaskClause>(clause.body)) spans.push_back(clause.span);
  }
  return spans;
}

}  // namespace

std::optional<ast::Number> Analysis::value_of(const ast::Expr& expr) const {
  if (!environment || !spec) return std::nullopt;
  diag::Sink unheard(*source);
  const auto lookup = [&](const std::string& name, support::Span span) {
    return environment->value_of(name, span, unheard);
  };
  const sema::Known known = sema::evaluate(expr, lookup, unheard);
  if (known.state != sema::Known::State::value) return std::nullopt;
  return known.number;
}

std::optional<ast::Number> Analysis::size_of(std::string_view dimension) const {
  if (!environment) return std::nullopt;
  const auto dim = dimension == "D" ? environment->head_dim : ir::parse_dim(dimension);
  const auto size = dim ? environment->dims.get(*dim) : std::nullopt;
  return size ? std::optional<ast::Number>(*size) : std::nullopt;
}

std::string_view Analysis::type_of(Span expression) const {
  const auto type = types_.find(expression);
  return type == types_.end() ? "" : ir::to_string(type->second);
}

void Analysis::read_types() {
  if (!attention) return;
  for (const auto& [id, all] : spans.of) {
    for (const Span span : all) types_.emplace(span, attention->dag[id].type);
  }
}

void Analysis::read_names() {
  diag::Sink& files = is_complete ? *found : *unheard_;
  files_ = &files;
  if (!spec) return;
  library = sema::load_imports(*spec, files);
  index = Index(*spec, library);
  if (spec->is_library) return;
  diag::Sink unheard(*source);
  environment = sema::make_environment(*spec, {}, unheard);
}

std::shared_ptr<const Analysis> analyze(support::Source text) {
  auto analysis = std::make_shared<Analysis>();
  analysis->source = std::make_shared<const support::Source>(std::move(text));
  const support::Source& source = *analysis->source;
  analysis->found = std::make_unique<diag::Sink>(source);
  analysis->unheard_ = std::make_unique<diag::Sink>(source);
  diag::Sink& sink = *analysis->found;
  analysis->spec = ast::parse(source, sink);
  analysis->is_complete = analysis->spec && !sink.has_errors();
  if (!analysis->spec) analysis->spec = ast::parse_incomplete(source);
  analysis->read_names();
  if (!analysis->is_complete) return analysis;
  if (analysis->spec->is_library) {
    sema::check_library(*analysis->spec, analysis->library, sink);
  } else {
    const std::vector<sema::Bindings> all = sema::variants(*analysis->spec, {});
    analysis->attention = sema::analyze(*analysis->spec, analysis->library, all.front(), sink,
                                        &analysis->spans, kMostWork);
    analysis->read_types();
  }
  return analysis;
}

std::unique_ptr<diag::Sink> check_all(const Analysis& analysis) {
  auto sink = std::make_unique<diag::Sink>(*analysis.source);
  const auto functions = driver::check_library(*analysis.source, *sink);
  if (!functions && !sink->has_errors()) driver::check_all_sizes(*analysis.source, {}, *sink);
  return sink;
}

MaskFacts mask_facts(const Analysis& analysis) {
  MaskFacts facts;
  if (!analysis.attention) {
    if (analysis.found->is_stopped()) facts.reason = "the spec has too many operations";
    return facts;
  }
  const ir::Attention& attention = *analysis.attention;
  const auto picture = picture_of(attention);
  if (!picture.ok()) {
    facts.reason = picture.error().message;
    return facts;
  }
  facts.picture = pictures::to_terminal(*picture, false);
  facts.total = share_of(picture);
  const std::vector<Span> clauses = mask_clauses(*analysis.spec);
  if (clauses.size() != attention.masks.size() || clauses.size() > kMostMaskShares) return facts;
  const bool is_all = clauses.size() == 1 && !attention.lengths_q && !attention.lengths_kv;
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    const std::string share =
        is_all ? facts.total : share_of(picture_of(with_mask(attention, attention.masks[i])));
    if (!share.empty()) facts.clauses.push_back({clauses[i], share});
  }
  return facts;
}

}  // namespace attn::tools::lsp
