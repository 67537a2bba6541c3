#include "compiler/passes/happens.h"

#include <algorithm>
#include <optional>

#include "compiler/passes/axes.h"
#include "compiler/passes/box_values.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;

constexpr std::int64_t kSmallest32 = INT32_MIN, kLargest32 = INT32_MAX;
constexpr int kMostShift = 31;
constexpr std::int64_t kMostSearches = 16;  // that use up what each may

const Assumed kUnknown{};
const Assumed kAgreed{{}, {}, Axes{}, true};
Assumed example(double score) { return {RealRange::of(score), RealRange::of(0.75), Axes{}, true}; }

// What may happen, and is looked for.
struct Question {
  Event event;
  ExprId at;
  std::size_t operand = 0;
};

struct Answer {
  Sure sure = Sure::no;
  std::int64_t value = 0;
};

Answer outside(const Range& x, std::int64_t low, std::int64_t high) {
  if (x.low >= low && x.high <= high) return {Sure::no};
  if (x.low > high) return {Sure::yes, x.high};
  if (x.high < low) return {Sure::yes, x.low};
  return {Sure::maybe};
}

// The exact result, which may be more than 32 bits hold. Every operand has at most 32.
std::optional<Range> exact(Op op, const Range& x, const Range& y) {
  switch (op) {
    case Op::add_: return Range{x.low + y.low, x.high + y.high};
    case Op::sub_: return Range{x.low - y.high, x.high - y.low};
    case Op::neg_: return Range{-x.high, -x.low};
    case Op::mul_: {
      const auto [low, high] =
          std::minmax({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
      return Range{low, high};
    }
    case Op::shift_left_: {
      if (y.low < 0 || y.high > kMostShift || x.low < 0) return std::nullopt;
      return Range{x.low << y.low, x.high << y.high};
    }
    default: return std::nullopt;
  }
}

std::pair<Box, Box> halves(const Box& box, Range Box::*axis) {
  std::pair<Box, Box> parts(box, box);
  const Range& whole = box.*axis;
  const std::int64_t middle = whole.low + (whole.high - whole.low) / 2;
  (parts.first.*axis).high = middle;
  (parts.second.*axis).low = middle + 1;
  return parts;
}

constexpr Range Box::*kAxes[] = {&Box::batch, &Box::head, &Box::row, &Box::column};

Range Box::*longest_axis(const Box& box) {
  const auto length = [&box](Range Box::*axis) { return (box.*axis).high - (box.*axis).low; };
  return *std::ranges::max_element(kAxes, {}, length);
}

bool is_single(const Box& box) {
  const Range& longest = box.*longest_axis(box);
  return longest.low == longest.high;
}

bool has_scores(const ir::Attention& attention) {
  return std::ranges::none_of(ir::kDims, [&](ir::Dim dim) { return attention.dims.get(dim) == 0; });
}

class Search {
 public:
  explicit Search(const ir::Attention& attention)
      : attention_(attention), dag_(attention.dag), values_(attention) {
    mark();
  }

  std::vector<Happening> run() {
    const Box whole = box_;
    if (attention_.lengths_q) box_.row = {0, 0};
    if (attention_.lengths_kv) box_.column = {0, 0};
    ask_faults();
    box_ = whole;
    ask_all(overflows(), kAgreed, 0);
    for (const double score : {1.5, -1.5}) ask_all(real_questions(), example(score), score);
    return std::move(found_);
  }

 private:
  // Which axes anything varies with, and what bits are taken of.
  void mark() {
    const Box whole = whole_box(attention_);
    Axes axes;
    bits_.resize(values_.order().back() + 1);
    for (const ExprId id : values_.order()) {
      const Node& node = dag_[id];
      axes.batch |= node.is(Op::batch_);
      axes.head |= node.is(Op::head_);
      axes.row |= node.is(Op::row_);
      axes.column |= node.is(Op::column_);
    }
    for (std::size_t i = values_.order().size(); i-- > 0;) mark_bits(values_.order()[i]);
    const auto set = [&](Range Box::*axis, bool varies, ir::Dim dim) {
      box_.*axis = varies && attention_.dims.get(dim) ? whole.*axis : Range{0, 0};
    };
    set(&Box::batch, axes.batch, ir::Dim::B);
    set(&Box::head, axes.head, ir::Dim::Hq);
    set(&Box::row, axes.row, ir::Dim::Sq);
    set(&Box::column, axes.column, ir::Dim::Skv);
  }

  void mark_bits(ExprId id) {
    const Node& node = dag_[id];
    const bool is_bits = ir::info(node.op).rule == ir::Rule::bits;
    const bool passes = ir::info(node.op).rule == ir::Rule::arithmetic && bits_[id];
    if (!is_bits && !passes) return;
    for (const ExprId operand : node.operands) bits_[operand] = true;
  }

  void ask_all(const std::vector<Question>& questions, const Assumed& assumed, double score) {
    values_.look_at(box_, assumed);
    for (const Question& question : questions) ask(question, assumed, score);
  }

  // A mask that varies with nothing that the operand varies with hides all of what happens or
  // nothing: it is no guard.
  void ask_faults() {
    const auto cost = static_cast<std::int64_t>(values_.order().size());
    values_.look_at(box_, kUnknown);
    std::vector<Question> open = faults();
    std::erase_if(open, [&](const Question& each) { return answer(each).sure == Sure::no; });
    for (const Question& question : open) {
      evaluations_ += cost;
      if (evaluations_ > kMostEvaluations) return;
      const ExprId operand = dag_[question.at].operands[question.operand];
      ask_all({question}, {{}, {}, values_.axes(operand)}, 0);
    }
  }

  // Of what has no value.
  std::vector<Question> faults() const {
    std::vector<Question> questions;
    for (const ExprId id : values_.order()) {
      const Node& node = dag_[id];
      const bool integer = node.type == Type::integer;
      if (node.is(Op::load_)) {
        for (std::size_t i = 0; i < node.operands.size(); ++i) {
          questions.push_back({Event::index_outside, id, i});
        }
      } else if (integer && (node.is(Op::floordiv_) || node.is(Op::mod_))) {
        questions.push_back({Event::zero_divisor, id, 1});
      } else if (node.is(Op::shift_left_) || node.is(Op::shift_right_)) {
        questions.push_back({Event::shift_outside, id, 1});
      }
    }
    return questions;
  }

  std::vector<Question> overflows() const {
    std::vector<Question> questions;
    for (const ExprId id : values_.order()) {
      const bool wraps = dag_[id].type == Type::integer && !dag_[id].operands.empty() &&
                         exact(dag_[id].op, {0, 0}, {0, 0});
      if (wraps && !bits_[id]) questions.push_back({Event::overflow, id});
    }
    return questions;
  }

  std::vector<Question> real_questions() const {
    std::vector<Question> questions;
    for (const ExprId id : values_.order()) {
      const Node& node = dag_[id];
      const bool divides = node.is(Op::div_) || node.is(Op::floordiv_) || node.is(Op::mod_);
      if (divides && node.type == Type::real) {
        questions.push_back({Event::division_by_zero, id, 1});
      }
    }
    questions.push_back({Event::not_finite, attention_.scale});
    questions.push_back({Event::not_finite, attention_.score});
    if (attention_.sink) questions.push_back({Event::not_finite, *attention_.sink});
    return questions;
  }

  // In the box looked at last, whether it counts or not.
  Answer answer(const Question& question) const {
    const Node& node = dag_[question.at];
    const auto operand = [&](std::size_t i) { return values_.range(node.operands[i]); };
    switch (question.event) {
      case Event::index_outside: {
        const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(question.at));
        const auto extent = ir::fold_integer(dag_, tensor.extents[question.operand]);
        return outside(operand(question.operand), 0, extent ? *extent - 1 : kLargest32);
      }
      case Event::zero_divisor: {
        const Range divisor = operand(1);
        if (divisor.low > 0 || divisor.high < 0) return {Sure::no};
        return {divisor == Range{0, 0} ? Sure::yes : Sure::maybe};
      }
      case Event::shift_outside: return outside(operand(1), 0, kMostShift);
      case Event::overflow: {
        const auto range = exact(node.op, operand(0), operand(node.operands.size() - 1));
        return range ? outside(*range, kSmallest32, kLargest32) : Answer{Sure::maybe};
      }
      case Event::division_by_zero: {
        const RealRange& divisor = values_.real(node.operands[1]);
        if (!divisor.holds(0)) return {Sure::no};
        return {divisor.is_point() ? Sure::yes : Sure::maybe};
      }
      case Event::not_finite: {
        const RealRange& value = values_.real(question.at);
        const bool scales = question.at == attention_.scale;
        if (value.low == RealRange::kInfinity) return {Sure::yes};
        if (scales && value.high == -RealRange::kInfinity) return {Sure::yes};
        return {value.high < RealRange::kInfinity && !value.nan ? Sure::no : Sure::maybe};
      }
    }
    return {};
  }

  Answer counted(const Question& question) const {
    const Sure counts = values_.counts(question.at);
    if (counts == Sure::no) return {Sure::no};
    Answer found = answer(question);
    found.sure = std::min(found.sure, counts);
    return found;
  }

  // Boxes that hold what is not known are not made smaller: tensors say it.
  bool depends_on_tensors(const Question& question) const {
    if (question.event == Event::not_finite) return false;
    const std::vector<ExprId>& operands = dag_[question.at].operands;
    if (question.event != Event::overflow) return values_.reads_inputs(operands[question.operand]);
    return std::ranges::any_of(operands, [&](ExprId each) { return values_.reads_inputs(each); });
  }

  bool is_known(const Question& question) const {
    return std::ranges::any_of(found_, [&](const Happening& other) {
      return other.at == question.at ||
             (other.event == question.event && question.event == Event::overflow &&
              stands_on(question.at, other.at));
    });
  }

  bool stands_on(ExprId id, ExprId part) const {
    const ExprId roots[] = {id};
    return std::ranges::binary_search(ir::reachable(dag_, roots), part);
  }

  // The whole box is the one looked at last, and is again afterwards.
  void ask(const Question& question, const Assumed& assumed, double score) {
    if (is_known(question)) return;
    const Answer whole = counted(question);
    if (whole.sure == Sure::no) return;
    if (whole.sure == Sure::yes) return add(question, whole, box_, score);
    if (depends_on_tensors(question)) return;
    search(question, assumed, score);
    values_.look_at(box_, assumed);
  }

  void search(const Question& question, const Assumed& assumed, double score) {
    const auto cost = static_cast<std::int64_t>(values_.order().size());
    const std::int64_t most =
        std::min(kMostEvaluations, evaluations_ + kMostEvaluations / kMostSearches);
    std::vector<Box> open = {box_};
    while (!open.empty() && evaluations_ + cost <= most) {
      const Box box = open.back();
      open.pop_back();
      evaluations_ += cost;
      values_.look_at(box, assumed);
      const Answer found = counted(question);
      if (found.sure == Sure::yes) return add(question, found, box, score);
      if (found.sure == Sure::no || is_single(box)) continue;
      const auto [first, second] = halves(box, longest_axis(box));
      open.push_back(first);
      open.push_back(second);  // the far end first
    }
  }

  void add(const Question& question, const Answer& answer, const Box& box, double score) {
    Happening happening{question.event, question.at, question.operand, answer.value, box, score};
    if (question.event == Event::not_finite) happening.at = cause(question.at);
    const bool again = std::ranges::any_of(
        found_, [&](const Happening& other) { return other.at == happening.at; });
    if (!again) found_.push_back(happening);
  }

  // The operation that first makes what the whole is, in the box looked at last.
  ExprId cause(ExprId id) const {
    const auto is_cause = [&](ExprId operand) {
      return dag_[operand].type == Type::real && !dag_[operand].operands.empty() &&
             values_.counts(operand) == Sure::yes &&
             values_.real(operand).low == RealRange::kInfinity;
    };
    for (;;) {
      const std::vector<ExprId>& operands = dag_[id].operands;
      const auto next = std::ranges::find_if(operands, is_cause);
      if (next == operands.end()) return id;
      id = *next;
    }
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  BoxValues values_;
  Box box_;
  std::vector<bool> bits_;  // by id: operands of bit operations
  std::int64_t evaluations_ = 0;
  std::vector<Happening> found_;
};

}  // namespace

bool hides_all(const ir::Attention& attention) {
  if (!has_scores(attention) || attention.masks.empty()) return false;
  ir::Attention masks = attention;
  masks.score = masks.dag.leaf(Op::score_);
  BoxValues values(masks);
  const auto cost = static_cast<std::int64_t>(values.order().size());
  std::vector<Box> open = {whole_box(masks)};
  for (std::int64_t evaluations = cost; !open.empty(); evaluations += cost) {
    if (evaluations > kMostEvaluations) return false;
    const Box box = open.back();
    open.pop_back();
    values.look_at(box, kUnknown);
    const Sure counts = values.counts(masks.score);
    if (counts == Sure::no) continue;
    if (counts == Sure::yes || is_single(box)) return false;
    const auto [first, second] = halves(box, longest_axis(box));
    open.push_back(first);
    open.push_back(second);
  }
  return true;
}

std::vector<Happening> happenings(const ir::Attention& attention) {
  if (!has_scores(attention)) return {};
  return Search(attention).run();
}

}  // namespace attn::passes
