#include "compiler/check/static_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/check/index_advice.h"
#include "compiler/check/zero_scores.h"
#include "compiler/ir/epilogue.h"
#include "compiler/ir/prologues.h"
#include "compiler/masks/effects.h"
#include "compiler/masks/happens.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/simplify.h"

namespace attn::check {
namespace {

using diag::Code;
using ir::ExprId;
using masks::Event;
using masks::Happening;
using support::Span;

bool holds(Span outer, Span inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

constexpr std::int64_t kMostOperations = std::int64_t{1}
                                         << 21;  // of all searches for hidden scores

// What expressions of a view are in the attention that it is of, whose names are the spec's.
struct Viewed {
  const ir::Attention& attention;
  std::map<ExprId, ExprId> of{};
  bool can_guard = true;  // whether kernels take indexes that conditions guard
};

class Checker {
 public:
  // `viewed` is null, or that of the subject, which is a view.
  Checker(const StaticSubject& subject, const target::Context& context, diag::Sink& sink,
          const Viewed* viewed = nullptr)
      : subject_(subject),
        viewed_(viewed),
        written_(subject.written),
        mask_(masks::analyzed(subject.simplified, context)),
        context_(context),
        sink_(sink) {}

  // Reports what happens in the view of an epilogue or a prologue: there are no weights.
  void run_of_view() {
    const masks::Happenings happenings = masks::happenings(written_, mask_->form().band);
    if (happenings.stopped) sink_.set_stopped();
    for (const Happening& happening : happenings.found) report_error(happening);
    if (sink_.has_errors()) return;
    for (const Happening& happening : happenings.found) {
      if (happening.event != Event::not_finite) report_warning(happening);
    }
  }

  void run() {
    const masks::Happenings happenings = masks::happenings(written_, mask_->form().band);
    report(happenings);
    if (happenings.stopped || effort_.is_spent()) sink_.set_stopped();
    sink_.add_work(
        static_cast<std::uint64_t>(happenings.evaluations + kMostOperations - effort_.left()) /
        kEvaluationsOfWork);
  }

 private:
  void report(const masks::Happenings& happenings) {
    for (const Happening& happening : happenings.found) report_error(happening);
    check_numbers();
    if (sink_.has_errors()) return;
    for (const Happening& happening : happenings.found) report_warning(happening);
    check_masks();
    check_effects();
    for (const sema::Spans::Score& clause : subject_.spans.scores) check_zeros(clause);
  }

  const ir::Node& node(ExprId id) const { return written_.dag[id]; }

  // The span of the expression, else of an expression that uses it, else of its first operand.
  Span span_of(ExprId id) const {
    if (const auto own = subject_.spans.of.find(id); own != subject_.spans.of.end()) {
      return own->second.front();
    }
    std::vector<bool> stands_on(written_.dag.size());
    stands_on[id] = true;
    for (ExprId user = id + 1; user < stands_on.size(); ++user) {
      const std::vector<ExprId>& operands = node(user).operands;
      stands_on[user] = std::ranges::any_of(operands, [&](ExprId each) { return stands_on[each]; });
      const auto span = subject_.spans.of.find(user);
      if (stands_on[user] && span != subject_.spans.of.end()) return span->second.front();
    }
    return node(id).operands.empty() ? subject_.name : span_of(node(id).operands.front());
  }

  // The spans of the expression inside `outer`.
  std::vector<Span> spans_within(Span outer, ExprId id) const {
    std::vector<Span> inside;
    if (const auto own = subject_.spans.of.find(id); own != subject_.spans.of.end()) {
      std::ranges::copy_if(own->second, std::back_inserter(inside),
                           [&](Span span) { return holds(outer, span); });
    }
    return inside;
  }

  // The span of operand `id` within `user`, which is written at `outer`; preferably one that is not
  // part of another operand. nullopt if it is not written there.
  std::optional<Span> span_of_part(Span outer, ExprId user, ExprId id) const {
    const std::vector<Span> all = spans_within(outer, id);
    std::vector<Span> others;
    for (const ExprId operand : node(user).operands) {
      if (operand != id)
        std::ranges::copy(spans_within(outer, operand), std::back_inserter(others));
    }
    const auto is_own = [&](Span span) {
      return std::ranges::none_of(others, [&](Span other) { return holds(other, span); });
    };
    const auto own = std::ranges::find_if(all, is_own);
    if (own != all.end()) return *own;
    return all.empty() ? std::nullopt : std::optional(all.front());
  }

  // An expression may be written in several places and be guarded in some: this finds the one that
  // belongs to the users through which the event happens.
  Span span_of(const Happening& happening) const {
    std::optional<Span> within;
    ExprId user = happening.at;
    const auto narrow = [&](ExprId id) {
      if (!subject_.spans.of.contains(id)) return;
      const auto inside = within ? span_of_part(*within, user, id) : std::nullopt;
      within = inside ? *inside : span_of(id);
      user = id;
    };
    for (std::size_t i = happening.users.size(); i-- > 0;) narrow(happening.users[i]);
    narrow(happening.at);
    return within ? *within : span_of(happening.at);
  }

  // The span of the operand if it is written within the operation, else of the operation.
  Span span_of_operand(const Happening& happening) const {
    const Span whole = span_of(happening);
    const auto part =
        span_of_part(whole, happening.at, node(happening.at).operands[happening.operand]);
    return part ? *part : whole;
  }

  // The expression, shortened if it is long.
  std::string short_text(ExprId id) const {
    const auto named = viewed_ ? viewed_->of.find(id) : std::map<ExprId, ExprId>::const_iterator();
    std::string source = viewed_ && named != viewed_->of.end()
                             ? ir::to_source(viewed_->attention, named->second)
                             : ir::to_source(written_, id);
    if (source.size() > kMostText) source = source.substr(0, kMostText) + "...";
    return source;
  }
  std::string text(ExprId id) const { return fmt::format("`{}`", short_text(id)); }
  std::string operand_text(const Happening& happening) const {
    return text(node(happening.at).operands[happening.operand]);
  }

  // The help for a division, with the operator that was written.
  std::string guard(const Happening& happening) const {
    const ir::Node& division = node(happening.at);
    const char* written = division.is(ir::Op::mod_)        ? "%"
                          : division.is(ir::Op::floordiv_) ? "//"
                                                           : "/";
    return fmt::format("guard it with `where(y != 0, x {} y, 0)`", written);
  }

  void report_error(const Happening& happening) {
    switch (happening.event) {
      case Event::index_outside: return report_index(happening);
      case Event::zero_divisor:
        sink_
            .report(Code::bad_operand, span_of_operand(happening),
                    fmt::format("division by zero: {} is 0 for a visible score",
                                operand_text(happening)))
            .help = guard(happening);
        return;
      case Event::shift_outside:
        sink_.report(Code::bad_operand, span_of_operand(happening),
                     fmt::format("{} {} {}, but a shift must be 0 to {}", operand_text(happening),
                                 happening.value < 0 ? "falls to" : "reaches", happening.value,
                                 ir::most_shift(written_.dag[happening.at].type)));
        return;
      default: return;
    }
  }

  void report_index(const Happening& happening) {
    const std::string& name = written_.dag.symbol_of(happening.at);
    const ir::CapturedTensor& tensor = *written_.find_tensor(name);
    const auto size = ir::fold_integer(written_.dag, tensor.extents[happening.operand]);
    const std::string index = operand_text(happening);
    diag::Diagnostic& diagnostic = sink_.report(
        Code::index_out_of_range, span_of_operand(happening),
        happening.value < 0
            ? fmt::format("{} falls to {}, but indexes start at 0", index, happening.value)
            : fmt::format("{} reaches {}, but `{}` has size {} along this axis", index,
                          happening.value, name, size.value_or(0)));
    const ExprId at = node(happening.at).operands[happening.operand];
    const auto part = span_of_part(span_of(happening), happening.at, at);
    const std::optional<std::string> source = part ? source_text(*part) : std::nullopt;
    const bool summed = is_summed(happening.at);
    const IndexAdvice advice = advice_for(
        {at, happening.value, size.value_or(0), source.value_or(short_text(at)),
         !viewed_ && !summed, viewed_ ? viewed_->can_guard : !summed, viewed_ ? "d_idx" : "kv_idx"},
        written_);
    diagnostic.help = advice.help;
    const std::optional<Span> place = source ? part : span_of_row(diagnostic.span);
    if (!place) return;
    for (const std::string& text : advice.instead) diagnostic.add_replacement(*place, text);
  }

  // Whether the expression is a part of what is summed along keys.
  bool is_summed(ExprId id) const {
    return std::ranges::any_of(written_.sums, [&](const ir::KeySum& sum) {
      const std::vector<ExprId> below = ir::reachable(written_.dag, std::span(&sum.value, 1));
      return std::ranges::binary_search(below, id);
    });
  }

  // The only `q_idx` in a span: that of an index alone is not recorded.
  std::optional<Span> span_of_row(Span span) const {
    constexpr std::string_view kRow = "q_idx";
    const std::string text = source_text(span).value_or("");
    const std::size_t at = text.find(kRow);
    if (at == text.npos || text.find(kRow, at + 1) != text.npos) return std::nullopt;
    const auto begin = span.begin + static_cast<std::uint32_t>(at);
    return Span{begin, begin + static_cast<std::uint32_t>(kRow.size())};
  }

  // What is written there, if it is short and no JSON.
  std::optional<std::string> source_text(Span span) const {
    const diag::Location place = sink_.locate(span);
    const std::string_view text =
        place.source->text().substr(place.span.begin, place.span.end - place.span.begin);
    const bool is_short = text.size() <= kMostText && text.find('\n') == text.npos;
    return is_short && !place.source->is_json() ? std::optional(std::string(text)) : std::nullopt;
  }

  // Reports constants that are NaN.
  void check_numbers() {
    const auto is_nan = [](const ir::Dag& dag, ExprId id) {
      const auto value = dag[id].type == ir::Type::real ? ir::fold_real(dag, id) : std::nullopt;
      return value && std::isnan(*value);
    };
    const ir::Attention& simplified = subject_.simplified;
    const std::vector<ExprId> kept = ir::reachable(simplified.dag, simplified.roots());
    const auto is_constant_nan = [&](ExprId id) {
      return simplified.dag[id].is(ir::Op::const_real_) && is_nan(simplified.dag, id);
    };
    if (std::ranges::none_of(kept, is_constant_nan)) return;
    const std::vector<ExprId> all = ir::reachable(written_.dag, written_.roots());
    const auto found =
        std::ranges::find_if(all, [&](ExprId id) { return is_nan(written_.dag, id); });
    const ExprId place = found == all.end() ? written_.score : *found;
    sink_.report(Code::not_a_number, span_of(place), "this is NaN for any input");
  }

  void report_warning(const Happening& happening) {
    const Span span = span_of(happening);
    switch (happening.event) {
      case Event::overflow:
        sink_
            .report(Code::integer_overflow, span,
                    fmt::format("{} reaches {}, which does not fit in 32 bits and wraps around",
                                text(happening.at), happening.value))
            .help = is_product_of_bits(happening)
                        ? "frameworks compute it in 64 bits: use smaller factors, or take the same "
                          "bits there"
                        : "divide instead of multiplying, or compute in reals: `float(x)`";
        return;
      case Event::division_by_zero:
        sink_
            .report(Code::division_by_zero, span,
                    fmt::format("{} divides by zero: the result is infinite or NaN",
                                text(happening.at)))
            .help = "choose another divisor, or " + guard(happening);
        return;
      case Event::not_finite: return warn_of_infinity(happening, span);
      default: return;
    }
  }

  // " at b = 0, h = 1, query 2, key 3": those that the expression depends on.
  std::string place_of(const Happening& happening) const {
    const ExprId roots[] = {happening.at};
    const std::vector<ExprId> below = ir::reachable(written_.dag, roots);
    const std::tuple<ir::Op, const char*, masks::Range> all[] = {
        {ir::Op::batch_, "b =", happening.box.batch},
        {ir::Op::head_, "h =", happening.box.head},
        {ir::Op::row_, "query", happening.box.row},
        {ir::Op::column_, "key", happening.box.column}};
    std::string place;
    for (const auto& [op, name, range] : all) {
      if (std::ranges::none_of(below, [&](ExprId id) { return node(id).is(op); })) continue;
      place += fmt::format("{}{} {}", place.empty() ? " at " : ", ", name, range.low);
    }
    return place;
  }

  // Whether a bit operation takes the value: then it has no other use as a number.
  bool is_product_of_bits(const Happening& happening) const {
    return node(happening.at).is(ir::Op::mul_) &&
           std::ranges::any_of(happening.users, [this](ExprId user) {
             return ir::info(node(user).op).rule == ir::Rule::bits;
           });
  }

  void warn_of_infinity(const Happening& happening, Span span) {
    const ExprId roots[] = {happening.at};
    const std::vector<ExprId> below = ir::reachable(written_.dag, roots);
    const bool by_score =
        std::ranges::any_of(below, [&](ExprId id) { return node(id).is(ir::Op::score_); });
    sink_
        .report(Code::not_finite, span,
                fmt::format("{} is infinite or NaN{}{}", text(happening.at), place_of(happening),
                            by_score ? fmt::format(" where the score is {}", happening.score) : ""))
        .help = written_.is_sigmoid() ? "its weight is 1 or NaN; use `-inf` to hide a score"
                : !written_.is_softmax()
                    ? "its weight may not be finite; use `-inf` to hide a score"
                    : "softmax turns it into NaN; use `-inf` to hide a score, or add a large "
                      "number to prefer one";
  }

  // Whether a subset of the written masks hides everything. Lengths are unknown.
  bool hide_all(std::span<const ExprId> masks) {
    ir::Attention some = written_;
    some.masks.assign(masks.begin(), masks.end());
    some.score = some.dag.leaf(ir::Op::score_);
    return masks::analyzed(rewrite::simplify(some), context_)->hides_all(effort_);
  }

  void check_masks() {
    const std::vector<ExprId>& masks = written_.masks;
    if (written_.dims.get(ir::Dim::Skv) == 0 || !mask_->hides_all(effort_)) return;
    if (!hide_all(masks)) {
      sink_.report(Code::nothing_visible, span_of(written_.score),
                   "no query sees any key: every score is -inf where the masks are true");
      return;
    }
    const std::vector<ExprId> needed = fewest_that_hide(masks);
    const ExprId last = needed.back();
    const bool contradicts = needed.size() > 1;
    diag::Diagnostic& diagnostic = sink_.report(
        Code::nothing_visible, span_of(last),
        contradicts ? "no query sees any key: this mask contradicts the masks before it"
                    : "no query sees any key: this mask is never true");
    if (!contradicts && is_window(last)) {
      diagnostic.help = "the smallest useful window is 1: it shows the query's own key";
    }
    const std::span<const ExprId> before = std::span(needed).first(needed.size() - 1);
    for (const ExprId mask : before.last(std::min(before.size(), kMostLabels))) {
      diagnostic.labels.push_back({span_of(mask), "together with this"});
    }
  }

  // The shortest prefix of `masks` that hides everything (all of them do), with unneeded masks
  // removed if at most kMostLabels are left.
  std::vector<ExprId> fewest_that_hide(std::span<const ExprId> masks) {
    const std::span<const ExprId> until = shortest_that_hides(masks);
    if (hide_all(until.last(1))) return {until.back()};
    std::vector<ExprId> needed(until.begin(), until.end());
    for (std::size_t i = 0; i + 1 < needed.size() && needed.size() <= kMostLabels;) {
      std::vector<ExprId> fewer = needed;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (hide_all(fewer)) {
        needed = std::move(fewer);
      } else {
        ++i;
      }
    }
    return needed;
  }

  std::span<const ExprId> shortest_that_hides(std::span<const ExprId> masks) {
    std::size_t shows = 0, hides = masks.size();  // lengths of prefixes
    while (hides - shows > 1) {
      const std::size_t middle = shows + (hides - shows) / 2;
      (hide_all(masks.first(middle)) ? hides : shows) = middle;
    }
    return masks.first(hides);
  }

  // Whether the mask is written as a call of a function with `window` in its name.
  bool is_window(ExprId mask) const {
    const diag::Location place = sink_.locate(span_of(mask));
    const Span span = place.span;
    return place.source->text().substr(span.begin, span.end - span.begin).find("window") !=
           std::string_view::npos;
  }

  // The condition, as it is written in the clause if it is there, or its opposite.
  std::string condition_text(const Shown& shown, Span clause) const {
    using enum ir::Op;
    constexpr std::pair<ir::Op, ir::Op> kOpposites[] = {{lt_, ge_}, {ge_, lt_}, {le_, gt_},
                                                        {gt_, le_}, {eq_, ne_}, {ne_, eq_}};
    if (shown.shows) {
      const std::vector<Span> places = spans_within(clause, shown.condition);
      const auto source = places.empty() ? std::nullopt : source_text(places.front());
      return without_parentheses(source.value_or(short_text(shown.condition)));
    }
    const ir::Node& condition = node(shown.condition);
    ir::Attention copy = written_;
    const auto* found =
        std::ranges::find(kOpposites, condition.op, &std::pair<ir::Op, ir::Op>::first);
    const ExprId id = found != std::end(kOpposites)
                          ? copy.dag.add(found->second, condition.operands)
                          : copy.dag.add(not_, {shown.condition});
    return ir::to_source(copy, id);
  }

  // The text without parentheses around the whole of it.
  static std::string without_parentheses(std::string text) {
    for (std::size_t depth = 0, i = 0; i < text.size() && text.front() == '('; ++i) {
      depth += text[i] == '(' ? 1 : 0;
      depth -= text[i] == ')' ? 1 : 0;
      if (depth > 0) continue;
      return i + 1 < text.size() ? text : without_parentheses(text.substr(1, text.size() - 2));
    }
    return text;
  }

  // Whether the masks hide all scores that the clause sets to 0.
  bool masks_hide_zeros(const Shown& shown) {
    ir::Attention some = written_;
    some.masks.push_back(shown.shows ? some.dag.add(ir::Op::not_, {shown.condition})
                                     : shown.condition);
    some.score = some.dag.leaf(ir::Op::score_);
    return masks::analyzed(rewrite::simplify(some), context_)->hides_all(effort_);
  }

  void check_zeros(const sema::Spans::Score& clause) {
    const auto shown = shown_by_zeros(written_, clause.before, clause.after);
    if (!shown || masks_hide_zeros(*shown)) return;
    const std::string condition = condition_text(*shown, clause.span);
    auto& diagnostic = sink_.report(
        Code::zero_score, clause.span,
        fmt::format("the score is 0 unless `{}`, but a key with the score 0 keeps a weight",
                    condition));
    diagnostic.help = fmt::format("to hide these keys, write `mask {};`", condition);
    if (!shown->unchanged || !source_text(clause.span)) return;
    diagnostic.fixes.push_back({fmt::format("write `mask {};`", condition),
                                {{{clause.keyword.begin, clause.span.end}, "mask " + condition}}});
  }

  static std::string change(const std::vector<std::string>& names) {
    return fmt::format("`{}` {}", fmt::join(names, "`, `"),
                       names.size() > 1 ? "change" : "changes");
  }

  // Reports scores without q and k, and tensors and params that change no weight.
  void check_effects() {
    if (masks::ignores_products(written_)) return warn_of_ignored_products();
    const bool only_o = !written_.wants_lse && !written_.wants_more_than_lse();
    for (const masks::Ineffective& found : masks::ineffective(written_)) {
      const std::string what = fmt::format(
          "{} no weight: this is the same for every key of a row, and softmax cancels it unless it "
          "is -inf{}",
          change(found.names), only_o ? "" : "; only lse and the like depend on it");
      sink_.report(Code::cancelled_term, span_of(found.term), what).help =
          "a term that changes weights depends on `kv_idx`";
    }
  }

  // The last score clause whose value does not depend on the one before it, if it is among the last
  // few.
  const sema::Spans::Score* last_without_score() const {
    const std::vector<sema::Spans::Score>& all = subject_.spans.scores;
    for (std::size_t i = all.size(); i-- > 0 && all.size() - i <= kMostScores;) {
      const ExprId roots[] = {all[i].after};
      if (!std::ranges::binary_search(ir::reachable(written_.dag, roots), all[i].before)) {
        return &all[i];
      }
    }
    return nullptr;
  }

  void warn_of_ignored_products() {
    const sema::Spans::Score* clause = last_without_score();
    diag::Diagnostic& diagnostic =
        sink_.report(Code::ignored_products, clause ? clause->span : span_of(written_.score),
                     "the score does not depend on q and k");
    if (!clause) return;
    const std::string term = source_text(clause->span).value_or(short_text(clause->after));
    diagnostic.help = fmt::format("to add to the score, write `score score + {};`",
                                  clause->binds_weakly ? fmt::format("({})", term) : term);
  }

  static constexpr std::size_t kMostLabels = 8;
  static constexpr std::size_t kMostScores = 64;  // clauses that are looked at
  static constexpr std::size_t kMostText = 60;    // of an expression in a message

  const StaticSubject& subject_;
  const Viewed* viewed_;
  const ir::Attention& written_;
  masks::Analyzed mask_;  // of the simplified attention
  const target::Context& context_;
  diag::Sink& sink_;
  masks::Effort effort_{kMostOperations};
};

// Checks a view of the subject; `numbers` has what expressions of the subject are in it.
void check_view(const StaticSubject& subject, const ir::Attention& view,
                const std::map<ExprId, ExprId>& numbers, bool can_guard,
                const target::Context& context, diag::Sink& sink) {
  Viewed viewed{subject.written, {}, can_guard};
  for (const auto& [id, number] : numbers) viewed.of.emplace(number, id);
  sema::Spans spans;
  for (const auto& [id, places] : subject.spans.of) {
    const auto found = numbers.find(id);
    if (found != numbers.end()) spans.of[found->second] = places;
  }
  const ir::Attention simplified = rewrite::simplify(view);
  const StaticSubject of_view{view, simplified, spans, subject.name};
  Checker(of_view, context, sink, &viewed).run_of_view();
}

void check_epilogue(const StaticSubject& subject, const target::Context& context,
                    diag::Sink& sink) {
  std::map<ExprId, ExprId> numbers;
  const ir::Attention view = ir::epilogue_view(subject.written, &numbers);
  check_view(subject, view, numbers, true, context, sink);
}

void check_prologues(const StaticSubject& subject, const target::Context& context,
                     diag::Sink& sink) {
  for (ir::PrologueView& view : ir::prologue_views(subject.written)) {
    std::vector<ExprId> roots = view.sums;
    roots.push_back(view.value);
    for (const ExprId root : roots) {
      view.attention.score = root;
      check_view(subject, view.attention, view.numbers, false, context, sink);
    }
  }
}

}  // namespace

void check_statically(const StaticSubject& subject, const target::Context& context,
                      diag::Sink& sink) {
  Checker(subject, context, sink).run();
  if (subject.written.epilogue) check_epilogue(subject, context, sink);
  check_prologues(subject, context, sink);
}

}  // namespace attn::check
