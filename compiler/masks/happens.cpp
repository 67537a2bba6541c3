#include "compiler/masks/happens.h"

#include <algorithm>
#include <optional>

#include "compiler/masks/affine.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/box_values.h"
#include "compiler/masks/boxes.h"
#include "compiler/masks/open_boxes.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;

constexpr std::int64_t kSmallest32 = INT32_MIN, kLargest32 = INT32_MAX;
constexpr std::int64_t kMostSearches = 16;   // searches that may use their full share
constexpr std::int64_t kMostWidening = 256;  // boxes searched for a value further outside

const Assumed kUnknown{};
const Assumed kAgreed{{}, {}, Axes{}, true};
Assumed example(double score) { return {RealRange::of(score), RealRange::of(0.75), Axes{}, true}; }

// An event to look for.
struct Question {
  Event event;
  ExprId at;
  std::size_t operand = 0;
  std::optional<Affine> along{};  // the operand, if it depends on row - column alone
};

struct Answer {
  Sure sure = Sure::no;
  std::int64_t value = 0;
  Excess excess{};  // of the value in question
};

Answer outside(const Range& x, std::int64_t low, std::int64_t high) {
  // No further than 32 bits reach: wide values may be at the ends of 64.
  const std::int64_t least = std::max(x.low, kSmallest32), most = std::min(x.high, kLargest32);
  const Excess excess{std::max<std::int64_t>(low - least, 0),
                      std::max<std::int64_t>(most - high, 0)};
  if (x.low >= low && x.high <= high) return {Sure::no};
  if (x.low > high) return {Sure::yes, x.high, excess};
  if (x.high < low) return {Sure::yes, x.low, excess};
  return {Sure::maybe, 0, excess};
}

// A box where the event is certain.
struct Found {
  Box box;
  Answer answer;

  // Whether it is as far outside as `other`, on its own side.
  bool reaches(const Excess& other) const {
    return answer.excess.above > 0 ? answer.excess.above >= other.above
                                   : answer.excess.below >= other.below;
  }
};

// An event that may happen in the whole box, and where it was found.
struct Open {
  Question question;
  Answer whole;
  std::optional<Found> found{};
};

// The exact result, which may exceed 32 bits. Operands have at most 32 bits.
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
      if (y.low < 0 || y.high > ir::most_shift(Type::integer) || x.low < 0) return std::nullopt;
      return Range{x.low << y.low, x.high << y.high};
    }
    default: return std::nullopt;
  }
}

constexpr Range Box::*kAxes[] = {&Box::batch, &Box::head, &Box::row, &Box::column};

Range Box::*longest_axis(const Box& box) {
  const auto length = [&box](Range Box::*axis) { return (box.*axis).high - (box.*axis).low; };
  return *std::ranges::max_element(kAxes, {}, length);
}

// The corner scores of a box.
std::vector<Box> corners(const Box& box) {
  std::vector<Box> corners = {box};
  for (Range Box::*axis : kAxes) {
    const Range whole = box.*axis;
    const std::size_t count = corners.size();
    for (std::size_t i = 0; i < count; ++i) {
      corners[i].*axis = {whole.high, whole.high};
      if (whole.low == whole.high) continue;
      corners.push_back(corners[i]);
      corners.back().*axis = {whole.low, whole.low};
    }
  }
  return corners;
}

bool has_scores(const ir::Attention& attention) {
  return std::ranges::none_of(ir::kDims, [&](ir::Dim dim) { return attention.dims.get(dim) == 0; });
}

// The range of row - column within the band; empty if there are none.
Range shown_distances(const ir::Attention& attention, const Band& band) {
  const Box whole = whole_box(attention);
  return {std::max(whole.row.low - whole.column.high, band.right ? -*band.right : INT32_MIN),
          std::min(whole.row.high - whole.column.low, band.left ? *band.left : INT32_MAX)};
}

// What could happen at a score: faults, overflows, infinities.
class HappensQuestions {
 public:
  HappensQuestions(const ir::Attention& attention, const Band& band)
      : attention_(attention),
        dag_(attention.dag),
        values_(attention),
        distances_(shown_distances(attention, band)) {
    mark();
  }

 protected:
  // Marks the axes that any node varies with, and the operands of bit operations.
  void mark() {
    const Box whole = whole_box(attention_);
    Axes axes;
    bits_.resize(values_.order().back() + 1);
    overflows_.resize(bits_.size());
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

  Axes axes_of(const Question& question) const {
    return values_.axes(dag_[question.at].operands[question.operand]);
  }

  // Events without a value.
  std::vector<Question> faults() const {
    std::vector<Question> questions;
    for (const ExprId id : values_.order()) {
      const Node& node = dag_[id];
      const bool integer = ir::is_integral(node.type);
      if (node.is(Op::load_)) {
        for (std::size_t i = 0; i < node.operands.size(); ++i) {
          questions.push_back({Event::index_outside, id, i, along_diagonals(node.operands[i])});
        }
      } else if (integer && (node.is(Op::floordiv_) || node.is(Op::mod_))) {
        questions.push_back({Event::zero_divisor, id, 1, along_diagonals(node.operands[1])});
      } else if (node.is(Op::shift_left_) || node.is(Op::shift_right_)) {
        questions.push_back({Event::shift_outside, id, 1, along_diagonals(node.operands[1])});
      }
    }
    return questions;
  }

  std::vector<Question> overflows() const {
    std::vector<Question> questions;
    for (const ExprId id : values_.order()) {
      const bool wraps = dag_[id].type == Type::integer && !dag_[id].operands.empty() &&
                         exact(dag_[id].op, {0, 0}, {0, 0});
      if (wraps && (!bits_[id] || dag_[id].is(Op::mul_)))
        questions.push_back({Event::overflow, id});
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

  // Whether a fault happens with an operand in this range.
  Answer fault(const Question& question, const Range& operand) const {
    if (operand.low > operand.high) return {Sure::no};
    switch (question.event) {
      case Event::index_outside: {
        const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(question.at));
        const auto extent = ir::fold_integer(dag_, tensor.extents[question.operand]);
        return outside(operand, 0, extent ? *extent - 1 : kLargest32);
      }
      case Event::zero_divisor:
        if (operand.low > 0 || operand.high < 0) return {Sure::no};
        return {operand == Range{0, 0} ? Sure::yes : Sure::maybe};
      default: return outside(operand, 0, ir::most_shift(dag_[question.at].type));
    }
  }

  std::optional<Affine> along_diagonals(ExprId id) const {
    const auto affine = affine_of(attention_, id);
    if (!affine || affine->row != -affine->column) return std::nullopt;
    return affine->length_q || affine->length_kv ? std::nullopt : affine;
  }

  bool reads_place(ExprId at) const {
    constexpr Op kPlace[] = {Op::batch_, Op::head_, Op::row_, Op::column_};
    const ExprId roots[] = {at};
    return std::ranges::any_of(ir::reachable(dag_, roots), [&](ExprId id) {
      return std::ranges::any_of(kPlace, [&](Op op) { return dag_[id].is(op); });
    });
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  BoxValues values_;
  Range distances_;  // row - column of the scores that count
  Box box_;
  std::vector<bool> bits_;       // by id: operands of bit operations
  std::vector<bool> overflows_;  // by id: overflows that were found, and what depends on them
};

// What is known of the questions in a box, and what was found.
class HappensAnswers : public HappensQuestions {
 public:
  using HappensQuestions::HappensQuestions;

 protected:
  void look_at(const Box& box, const Assumed& assumed) {
    looked_ = box;
    values_.look_at(box, assumed);
  }

  // Takes one evaluation from the budget. False if it is used up.
  bool spend() {
    const bool is_left = evaluations_ + cost() <= kMostEvaluations;
    evaluations_ += is_left ? cost() : 0;
    stopped_ |= !is_left;
    return is_left;
  }

  std::int64_t cost() const { return static_cast<std::int64_t>(values_.order().size()); }

  // The range of the operand in the last box, at the distances from the diagonal that masks show;
  // empty if all is hidden.
  Range operand_range(const Question& question) const {
    const Range range = values_.range(dag_[question.at].operands[question.operand]);
    if (!question.along) return range;
    const std::int64_t nearest = std::max(looked_.row.low - looked_.column.high, distances_.low);
    const std::int64_t furthest = std::min(looked_.row.high - looked_.column.low, distances_.high);
    if (nearest > furthest) return {1, 0};
    const auto [low, high] =
        std::minmax({question.along->row * nearest, question.along->row * furthest});
    return {std::max(range.low, question.along->constant + low),
            std::min(range.high, question.along->constant + high)};
  }

  // The answer in the last box, whether the operation counts or not.
  Answer answer(const Question& question) const {
    const Node& node = dag_[question.at];
    const auto operand = [&](std::size_t i) { return values_.range(node.operands[i]); };
    switch (question.event) {
      case Event::index_outside:
      case Event::zero_divisor:
      case Event::shift_outside: return fault(question, operand_range(question));
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
        if (value.low == kInfinity) return {Sure::yes};
        if (scales && value.high == -kInfinity) return {Sure::yes};
        return {value.high < kInfinity && !value.nan ? Sure::no : Sure::maybe};
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

  // Keeps the answer that lies further outside.
  static void note(std::optional<Found>& found, const Box& box, const Answer& answer) {
    if (answer.sure != Sure::yes || (found && found->reaches(answer.excess))) return;
    found = {box, answer};
  }

  // If so, boxes are not halved: only tensors decide, or the same is unknown in each.
  bool is_the_same_in_parts(const Question& question) const {
    if (question.event == Event::not_finite) {
      return answer(question).sure == Sure::maybe && !reads_place(question.at);
    }
    const std::vector<ExprId>& operands = dag_[question.at].operands;
    if (question.event != Event::overflow) return values_.reads_inputs(operands[question.operand]);
    return std::ranges::any_of(operands, [&](ExprId each) { return values_.reads_inputs(each); });
  }

  bool is_known(const Question& question) const {
    if (question.event == Event::overflow && overflows_[question.at]) return true;
    return std::ranges::any_of(found_,
                               [&](const Happening& other) { return other.at == question.at; });
  }

  // Marks what depends on an operation that overflows.
  void mark_overflow(ExprId at) {
    overflows_[at] = true;
    for (const ExprId id : values_.order()) {
      const std::vector<ExprId>& operands = dag_[id].operands;
      if (std::ranges::any_of(operands, [&](ExprId each) { return overflows_[each]; })) {
        overflows_[id] = true;
      }
    }
  }

  // Users through which `at` counts in the last box.
  std::vector<ExprId> users_of(ExprId at) const {
    std::vector<ExprId> users;
    for (const ExprId id : values_.order()) {
      const std::vector<ExprId>& operands = dag_[id].operands;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (operands[i] != at || values_.counts_by(id, i) != Sure::yes) continue;
        users.push_back(at = id);
        break;
      }
    }
    return users;
  }

  // The innermost operation with the value +inf in the last box.
  ExprId cause(ExprId id) const {
    const auto is_cause = [&](ExprId operand) {
      return dag_[operand].type == Type::real && !dag_[operand].operands.empty() &&
             values_.counts(operand) == Sure::yes && values_.real(operand).low == kInfinity;
    };
    for (;;) {
      const std::vector<ExprId>& operands = dag_[id].operands;
      const auto next = std::ranges::find_if(operands, is_cause);
      if (next == operands.end()) return id;
      id = *next;
    }
  }

  Box looked_;  // the last one evaluated
  std::int64_t evaluations_ = 0;
  bool stopped_ = false;
  std::vector<Happening> found_;
};

class HappensSearch : private HappensAnswers {
 public:
  using HappensAnswers::HappensAnswers;

  Happenings run() {
    const Box whole = box_;
    if (attention_.lengths_q) box_.row = {0, 0};
    if (attention_.lengths_kv) box_.column = {0, 0};
    ask_faults();
    box_ = whole;
    ask_all(overflows(), kAgreed, 0);
    for (const double score : {1.5, -1.5}) ask_all(real_questions(), example(score), score);
    return {std::move(found_), stopped_, evaluations_};
  }

 private:
  // Answers questions with the same assumptions: each evaluated box serves all of them.
  void ask_all(const std::vector<Question>& questions, const Assumed& assumed, double score) {
    if (questions.empty() || !spend()) return;
    look_at(box_, assumed);
    std::vector<Open> open;
    for (const Question& question : questions) {
      const Answer whole = counted(question);
      if (whole.sure == Sure::yes) {
        open.push_back({question, whole, Found{box_, whole}});
      } else if (whole.sure == Sure::maybe && !is_the_same_in_parts(question)) {
        open.push_back({question, whole});
      }
    }
    look_at_corners(open, assumed);
    for (const Open& each : open) {
      if (has_room(each.question)) search(each, assumed, score);
    }
  }

  // Linear expressions are furthest outside at a corner.
  void look_at_corners(std::vector<Open>& open, const Assumed& assumed) {
    const auto is_sure = [](const Open& each) { return each.found.has_value(); };
    if (is_single(box_) || std::ranges::all_of(open, is_sure)) return;
    for (const Box& corner : corners(box_)) {
      if (!spend()) return;
      look_at(corner, assumed);
      for (Open& each : open) note(each.found, corner, counted(each.question));
    }
  }

  // A mask that shares no axis with the operand hides all of the faults or none, so it is not a
  // guard.
  void ask_faults() {
    if (!spend()) return;
    look_at(box_, kUnknown);
    std::vector<Question> open = faults();
    std::erase_if(open, [&](const Question& each) { return answer(each).sure == Sure::no; });
    while (!open.empty()) {
      const Axes axes = axes_of(open.front());
      const auto others = std::stable_partition(
          open.begin(), open.end(), [&](const Question& each) { return axes_of(each) == axes; });
      ask_all(std::vector<Question>(open.begin(), others), {{}, {}, axes}, 0);
      open.erase(open.begin(), others);
    }
  }

  // Whether another one of its kind may be reported.
  bool has_room(const Question& question) {
    if (is_known(question)) return false;
    const auto kind = [](Event event) {
      return event < Event::overflow ? 0 : event == Event::overflow ? 1 : 2;
    };
    const auto same = std::ranges::count_if(
        found_, [&](const Happening& other) { return kind(other.event) == kind(question.event); });
    const bool has_room = same < kMostHappenings;
    stopped_ |= !has_room;
    return has_room;
  }

  void search(const Open& asked, const Assumed& assumed, double score) {
    const std::optional<Found> found = furthest(asked, assumed);
    if (!found) return;
    look_at(found->box, assumed);
    evaluations_ += cost();
    add(asked.question, *found, score);
  }

  // Halves the whole box until the event is certain somewhere, then spends kMostWidening boxes on
  // values further outside.
  std::optional<Found> furthest(const Open& asked, const Assumed& assumed) {
    std::optional<Found> found = asked.found;
    if (is_single(box_) || (found && found->reaches(asked.whole.excess))) return found;
    const std::int64_t most =
        std::min(kMostEvaluations, evaluations_ + kMostEvaluations / kMostSearches);
    std::int64_t widening = kMostWidening;
    OpenBoxes open;
    open.push(box_, asked.whole.excess);
    while (const auto box = found ? open.pop_beyond(found->answer.excess) : open.pop()) {
      if (found && widening-- == 0) return found;
      const auto [first, second] = halves(*box, longest_axis(*box));
      for (const Box& half : {first, second}) {  // the far end is taken first
        if (evaluations_ + cost() > most) {
          stopped_ |= !found;
          return found;
        }
        evaluations_ += cost();
        look_at(half, assumed);
        const Answer answer = counted(asked.question);
        note(found, half, answer);
        if (answer.sure == Sure::maybe && !is_single(half)) open.push(half, answer.excess);
      }
    }
    return found;
  }

  // `seen.box` must be the last box.
  void add(const Question& question, const Found& seen, double score) {
    Happening happening{question.event, question.at, question.operand, seen.answer.value, seen.box,
                        score,          {}};
    if (question.event == Event::not_finite) happening.at = cause(question.at);
    const bool again = std::ranges::any_of(
        found_, [&](const Happening& other) { return other.at == happening.at; });
    if (again) return;
    happening.users = users_of(happening.at);
    found_.push_back(happening);
    if (happening.event == Event::overflow) mark_overflow(happening.at);
  }
};

}  // namespace

bool hides_all(const ir::Attention& attention, Effort& effort) {
  if (!has_scores(attention) || attention.masks.empty()) return false;
  ir::Attention masks = attention;
  masks.score = masks.dag.leaf(Op::score_);
  BoxValues values(masks);
  const auto cost = static_cast<std::int64_t>(values.order().size());
  std::vector<Box> open = {whole_box(masks)};
  while (!open.empty()) {
    if (!effort.spend(cost)) return false;
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

Happenings happenings(const ir::Attention& attention, const Band& band) {
  if (!has_scores(attention)) return {};
  return HappensSearch(attention, band).run();
}

}  // namespace attn::masks
