#include "compiler/driver/static_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/passes/band.h"
#include "compiler/passes/happens.h"
#include "compiler/passes/simplify.h"

namespace attn::driver {
namespace {

using diag::Code;
using ir::ExprId;
using passes::Event;
using passes::Happening;
using support::Span;

bool holds(Span outer, Span inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

class Checker {
 public:
  Checker(const StaticSubject& subject, diag::Sink& sink)
      : subject_(subject), written_(subject.written), sink_(sink) {}

  void run() {
    const std::vector<Happening> found = passes::happenings(written_);
    for (const Happening& happening : found) report_error(happening);
    check_numbers();
    if (sink_.has_errors()) return;
    for (const Happening& happening : found) report_warning(happening);
    check_masks();
  }

 private:
  const ir::Node& node(ExprId id) const { return written_.dag[id]; }

  // Its own place, else that of what is made of it, else that of what it is made of.
  Span span_of(ExprId id) const {
    if (const auto own = subject_.spans.find(id); own != subject_.spans.end()) return own->second;
    for (const auto& [user, span] : subject_.spans) {
      const ExprId roots[] = {user};
      if (user > id && std::ranges::binary_search(ir::reachable(written_.dag, roots), id)) {
        return span;
      }
    }
    return node(id).operands.empty() ? subject_.name : span_of(node(id).operands.front());
  }

  // The same, within the operation where it is written there.
  Span span_of_operand(const Happening& happening) const {
    const Span whole = span_of(happening.at);
    const auto part = subject_.spans.find(node(happening.at).operands[happening.operand]);
    const bool inside = part != subject_.spans.end() && holds(whole, part->second);
    return inside ? part->second : whole;
  }

  // As written, in backticks; cut where it is long.
  std::string text(ExprId id) const {
    constexpr std::size_t kMost = 60;
    std::string source = ir::to_source(written_, id);
    if (source.size() > kMost) source = source.substr(0, kMost) + "...";
    return fmt::format("`{}`", source);
  }
  std::string operand_text(const Happening& happening) const {
    return text(node(happening.at).operands[happening.operand]);
  }

  void report_error(const Happening& happening) {
    switch (happening.event) {
      case Event::index_outside: return report_index(happening);
      case Event::zero_divisor:
        sink_
            .report(Code::bad_operand, span_of_operand(happening),
                    fmt::format("division by zero: {} is 0 at a score that counts",
                                operand_text(happening)))
            .help = "guard it with `where(y != 0, x // y, 0)`";
        return;
      case Event::shift_outside:
        sink_.report(Code::bad_operand, span_of_operand(happening),
                     fmt::format("a shift by {}, which reaches {}: integers have 32 bits",
                                 operand_text(happening), happening.value));
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
            ? fmt::format("{} falls to {}, and indexes begin at 0", index, happening.value)
            : fmt::format("{} reaches {}, and `{}` has size {} along this axis", index,
                          happening.value, name, size.value_or(0)));
    diagnostic.help = "only what a mask hides or a `where` does not take may lie outside";
  }

  // Constants that no kernel is made of.
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
    sink_.report(Code::not_a_number, span_of(place),
                 "this is not a number, whatever the inputs are");
  }

  void report_warning(const Happening& happening) {
    const Span span = span_of(happening.at);
    switch (happening.event) {
      case Event::overflow:
        sink_
            .report(Code::integer_overflow, span,
                    fmt::format("{} reaches {}, which does not fit 32 bits: it wraps around",
                                text(happening.at), happening.value))
            .help = "divide instead of multiplying, or compute in reals: `float(x)`";
        return;
      case Event::division_by_zero:
        sink_
            .report(Code::division_by_zero, span,
                    fmt::format("{} divides by zero: it is infinite or NaN", text(happening.at)))
            .help = "choose another divisor, or guard it with `where(y != 0, x / y, 0)`";
        return;
      case Event::not_finite: return warn_of_infinity(happening, span);
      default: return;
    }
  }

  void warn_of_infinity(const Happening& happening, Span span) {
    const ExprId roots[] = {happening.at};
    const std::vector<ExprId> below = ir::reachable(written_.dag, roots);
    const bool by_score =
        std::ranges::any_of(below, [&](ExprId id) { return node(id).is(ir::Op::score_); });
    sink_
        .report(Code::not_finite, span,
                fmt::format("{} is infinite or NaN{}", text(happening.at),
                            by_score ? fmt::format(" where the score is {}", happening.score) : ""))
        .help =
        "softmax makes NaN of it; `-inf` hides a score, a large number prefers one (in f32, as "
        "kernels compute)";
  }

  // Whether the masks of a simplified attention show nothing. Of lengths nothing is known.
  static bool hides_all(const ir::Attention& attention) {
    const auto empty = [](const passes::Band& band) {
      return band.left && band.right && *band.right < -*band.left;
    };
    const passes::MaskForm form = passes::mask_form(attention);
    return empty(form.band) || empty(form.from_end) || passes::hides_all(attention);
  }

  // The same of some of the written masks alone.
  bool hide_all(const std::vector<ExprId>& masks) const {
    ir::Attention some = written_;
    some.masks = masks;
    some.score = some.dag.leaf(ir::Op::score_);
    return hides_all(passes::simplify(some));
  }

  void check_masks() {
    const std::vector<ExprId>& masks = written_.masks;
    if (written_.dims.get(ir::Dim::Skv) == 0 || !hides_all(subject_.simplified)) return;
    if (!hide_all(masks)) {
      sink_.report(Code::nothing_visible, span_of(written_.score),
                   "no query sees any key: every score is -inf where the masks hold");
      return;
    }
    const auto alone = std::ranges::find_if(masks, [&](ExprId mask) { return hide_all({mask}); });
    const bool contradict = alone == masks.end();
    diag::Diagnostic& diagnostic =
        sink_.report(Code::nothing_visible, span_of(contradict ? masks.back() : *alone),
                     contradict ? "no query sees any key: this mask contradicts those before it"
                                : "no query sees any key: this mask is never true");
    for (const ExprId mask : masks) {
      if (contradict && mask != masks.back()) {
        diagnostic.labels.push_back({span_of(mask), "beside this"});
      }
    }
    diagnostic.help = "a window of 1 is the smallest that shows a key: the query's own";
  }

  const StaticSubject& subject_;
  const ir::Attention& written_;
  diag::Sink& sink_;
};

}  // namespace

void check_statically(const StaticSubject& subject, diag::Sink& sink) {
  Checker(subject, sink).run();
}

}  // namespace attn::driver
