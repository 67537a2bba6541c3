#include "compiler/engines/native/cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/block_lists.h"
#include "compiler/passes/rewrite/hoist.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;
using lowering::NativeWork;

// Of the whole H200, in ms.
constexpr double kOperation = 0.0135e-9;     // on a score
constexpr double kMaskOperation = 0.007e-9;  // the same, where masks are evaluated
constexpr double kModified = 0.045e-9;       // a score, by anything at all
constexpr double kTable = 0.065e-9;          // a score, by a tensor over rows and columns
constexpr double kRandom = 0.56e-9;          // a score, by random dropout
constexpr double kRandomAgain = 1.2e-9;      // the same, in the backward
constexpr double kRow = 14e-6 / 132;         // of a tile
constexpr double kPiece = 60e-6 / 132;       // copied for itself
constexpr double kPieceOfMemory = 4.5e-8;    // the same, where memory is the limit
constexpr double kStart = 0.019;             // of a single row, which memory limits
constexpr double kListing = 0.006;  // of lists: waits that follow each other, besides a launch
constexpr double kBytesInAMillisecond = 4.64e9;

constexpr double kLookedAt = 5;          // operations on a score that lists are made from
constexpr double kOfCell = 100;          // the same, of a cell whose intervals decide
constexpr double kDivision = 2;          // operations of `//` and `%` by constants
constexpr double kMaskedOfLists = 0.25;  // of the blocks of lists that the GPU makes
constexpr double kLastTurn = 0.5;        // of a turn, by which the last one delays

// A score with its products, in ms, by the widths of q and v together.
struct Rate {
  double width, score;
};
constexpr Rate kRates[] = {{128, 0.461e-9}, {256, 0.666e-9}, {320, 0.907e-9}, {512, 1.214e-9}};
// Of 8-bit floats, on an H100.
constexpr Rate kRatesOf8Bits[] = {{128, 0.395e-9}, {192, 0.455e-9}, {256, 0.469e-9},
                                  {320, 0.578e-9}, {384, 0.69e-9},  {512, 0.788e-9}};

// Between those that were measured.
double of_score(double width, std::span<const Rate> rates) {
  const auto above = std::ranges::lower_bound(rates, width, {}, &Rate::width);
  if (above == rates.begin()) return above->score;
  if (above == rates.end()) return std::prev(above)->score * width / std::prev(above)->width;
  const Rate& below = *std::prev(above);
  const double part = (width - below.width) / (above->width - below.width);
  return below.score + part * (above->score - below.score);
}

double elements(const ir::Dims& d, Dim heads, Dim rows, Dim depth) {
  return static_cast<double>(d[Dim::B] * d[heads]) * static_cast<double>(d[rows] * d[depth]);
}

double operand_bytes(const ir::Dims& d, double element) {
  return element *
         (elements(d, Dim::Hq, Dim::Sq, Dim::Dqk) + elements(d, Dim::Hq, Dim::Sq, Dim::Dv) +
          elements(d, Dim::Hkv, Dim::Skv, Dim::Dqk) + elements(d, Dim::Hkv, Dim::Skv, Dim::Dv));
}

// Operations that each score takes: those that vary with rows and columns, or depend on the score.
// What varies with one of them alone is computed once a row, or read from shared memory.
class Operations {
 public:
  explicit Operations(const ir::Attention& attention)
      : dag_(attention.dag), dependence_(attention.dag) {}

  double of(const std::vector<ExprId>& roots) {
    std::vector<bool> scored(dag_.size());
    double sum = 0;
    for (const ExprId id : ir::reachable(dag_, roots)) {
      const ir::Node& node = dag_[id];
      scored[id] = node.is(Op::score_);
      for (const ExprId operand : node.operands) scored[id] = scored[id] || scored[operand];
      if (scored[id] || dependence_[id].both_sides()) sum += cost_of(node);
    }
    return sum;
  }

  bool reads_table(ExprId root) {
    const ExprId roots[] = {root};
    return std::ranges::any_of(ir::reachable(dag_, roots), [this](ExprId id) {
      return dag_[id].is(Op::load_) && dependence_[id].both_sides();
    });
  }

 private:
  double cost_of(const ir::Node& node) const {
    const bool divides = node.is(Op::floordiv_) || node.is(Op::mod_) || node.is(Op::div_);
    if (!divides || !dag_.is_constant(node.operands[1])) return passes::cost_for_each_score(node);
    return node.is(Op::div_) ? 1 : kDivision;
  }

  const ir::Dag& dag_;
  passes::Dependence dependence_;
};

// The share of the scores in lists whose visible part is known at an execute alone. Segments are
// taken to have equal lengths; a tile sees its own, whole blocks of it, and one whose rows are of
// two sees both.
double share_of_lists(Subject& subject, const NativeWork& work) {
  const ir::Dims& d = subject.attention().dims;
  const double rows = work.tiles * work.rows * work.heads;
  if (const auto& segments = subject.segments()) {
    ir::Dims each = d;
    const auto length = std::max(
        1.0, std::min(static_cast<double>(d[Dim::Sq]) / static_cast<double>(segments->most),
                      static_cast<double>(segments->longest)));
    each.set(Dim::Sq, std::llround(length));
    each.set(Dim::Skv, std::llround(length));
    const double share =
        passes::band_share(each, passes::analyzed(segments->attention, subject.context())->band());
    const double columns = length * share + work.queries + work.keys / 2;
    return std::min(1.0, rows * columns / work.scores);
  }
  const auto& lists = subject.mask().block_lists();
  if (!lists || !lists->assumed) return 1;
  const double listed = lists->listed / static_cast<double>(lists->tiles * lists->pages);
  return std::min(1.0, listed * static_cast<double>(d[Dim::Skv]) * rows / work.scores);
}

// Of lengths that nobody knows: half.
double share_of_lengths(Subject& subject) {
  const ir::Attention& own = subject.attention();
  const ir::Attention& attention = subject.padding() ? subject.padding()->attention : own;
  return (attention.lengths_q ? 0.5 : 1) * (attention.lengths_kv ? 0.5 : 1);
}

// Those of each score that is computed, in ms.
double of_modification(const ir::Attention& attention, bool backward, Operations& operations) {
  double ms = !attention.is_random() ? 0 : backward ? kRandomAgain : kRandom;
  if (attention.dag[attention.score].is(Op::score_)) return ms;
  ms += kModified + kOperation * operations.of({attention.score});
  return operations.reads_table(attention.score) ? ms + kTable : ms;
}

// The blocks of threads take equal tiles in turns; the last turn may leave some idle.
double last_turn(const NativeWork& work, const planning::Gpu& gpu) {
  const double items = work.tiles * work.splits, turns = items / gpu.multiprocessors;
  const double mean = work.scores / work.tiles;
  const double even = work.most > 0 ? std::min(1.0, mean / work.most) : 1;
  return 1 + kLastTurn * even * (std::ceil(turns) / turns - 1);
}

double lists_ms(const NativeWork& work, const planning::Gpu& gpu) {
  if (!work.lists) return 0;
  const double operations_in_a_ms = gpu.multiprocessors * gpu.lanes * gpu.clock * 1e6;
  return kListing + passes::predicted_ms_of_moving(work.lists->bytes, gpu) -
         passes::predicted_ms_of_moving(0, gpu) +
         (kLookedAt * work.lists->scores + kOfCell * work.lists->cells) / operations_in_a_ms;
}

}  // namespace

double predicted_ms_of_native(Subject& subject, const NativeWork& work) {
  const ir::Attention& attention = subject.attention();
  const planning::Gpu& gpu = subject.context().gpu;
  Operations operations(attention);
  const double share = share_of_lengths(subject) * (work.lists ? share_of_lists(subject, work) : 1);
  const double scores = share * work.scores;
  const double masked = work.lists ? kMaskedOfLists * scores : share * work.masked;
  const double scalar = passes::scalar_slowdown(gpu);
  const double of_one =
      attention.quantize ? of_score(work.width, kRatesOf8Bits) : of_score(work.width, kRates);
  const double products =
      of_one / work.rate * work.products * scores * passes::matrix_slowdown(gpu);
  const double others = ((of_modification(attention, subject.context().backward(), operations) +
                          kOperation * work.learned) *
                             scores +
                         kMaskOperation * operations.of(attention.masks) * masked) *
                        scalar;
  const double rows = kRow * work.rows * work.tiles * work.splits * scalar;
  // A block of threads computes the longest tile alone.
  const double longest = (products + others) * share * work.most / (work.splits * scores);
  const double computing = std::max((products + others + rows) * last_turn(work, gpu),
                                    longest * static_cast<double>(gpu.multiprocessors));
  const auto element = static_cast<double>(size_of(attention.dtype));
  const double bytes =
      std::min(element * scores / work.rows * work.width, operand_bytes(attention.dims, element));
  const double launches = work.launches * passes::predicted_ms_of_moving(0, gpu);
  const double memory = (attention.dims[Dim::Sq] == 1 ? kStart : launches) +
                        bytes / (kBytesInAMillisecond * gpu.bandwidth / planning::Gpu().bandwidth) +
                        kPieceOfMemory * share * work.pieces;
  const double moving =
      passes::predicted_ms_of_moving(work.moved, gpu) - passes::predicted_ms_of_moving(0, gpu);
  return std::max({launches + computing, memory, launches + kPiece * share * work.pieces}) +
         moving + lists_ms(work, gpu);
}

}  // namespace attn::engines
