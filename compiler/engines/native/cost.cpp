#include "compiler/engines/native/cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "compiler/engines/shared/block_lists.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/masks/axes.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/target/figures.h"

namespace attn::engines {
namespace {

using engines::NativeWork;
using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr double kRandom = 0.56e-9;      // ms of the whole H200, a score, by random dropout
constexpr double kRandomAgain = 1.2e-9;  // the same, in the backward

constexpr double kNarrow = 128;            // of q and v together, as the next ones
constexpr double kWidthOfRows = 256;       // that rows were measured with
constexpr double kWidestOfOneGroup = 512;  // where one warp group has all of o
constexpr double kLookedAt = 5;            // operations on a score that lists are made from
constexpr double kOfCell = 100;            // the same, of a cell whose intervals decide
constexpr double kDivision = 2;            // operations of `//` and `%` by constants
constexpr double kQuotient = 20;           // of reals, neither of which is constant
constexpr double kMaskedOfLists = 0.25;    // of blocks, where inputs decide which are computed
constexpr double kLastTurn = 0.5;          // of a turn, by which the last one delays

// Operations on a score that products hide, and ms of each further one: of a score, of a mask, and
// a tensor over columns that a mask reads besides two. H200: sums of 4 to 250 terms, and
// `any` of as many.
constexpr double kHidden = 48, kOfMany = 6e-11;
constexpr double kHiddenOfMask = 40, kOfLoop = 5e-10;
constexpr double kHiddenReads = 2, kOfRead = 4e-9;

// A score with its products, in ms, by the widths of q and v together.
struct Rate {
  double width, score;
};
// Rates of 8-bit floats, on an H100.
constexpr Rate kRatesOf8Bits[] = {{128, 0.395e-9}, {192, 0.455e-9}, {256, 0.469e-9},
                                  {320, 0.578e-9}, {384, 0.69e-9},  {512, 0.788e-9}};

// Time of a score, between widths that were measured.
double of_score(double width, std::span<const Rate> rates) {
  const auto above = std::ranges::lower_bound(rates, width, {}, &Rate::width);
  if (above == rates.begin()) return above->score;
  if (above == rates.end()) return std::prev(above)->score * width / std::prev(above)->width;
  const Rate& below = *std::prev(above);
  const double part = (width - below.width) / (above->width - below.width);
  return below.score + part * (above->score - below.score);
}

double of_score(double width, bool in_8_bits, const target::Figures& figures) {
  const Rate rates[] = {{128, figures.native_score_64},
                        {256, figures.native_score_128},
                        {320, figures.native_score_192},
                        {512, figures.native_score_256},
                        {1088, figures.native_score_wide}};
  return in_8_bits ? of_score(width, kRatesOf8Bits) : of_score(width, rates);
}

// Bytes of q and o.
double bytes_of_rows(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  return static_cast<double>(size_of(attention.dtype) * d[Dim::B] * d[Dim::Hq]) *
         static_cast<double>(d[Dim::Sq] * (d[Dim::Dqk] + d[Dim::Dv]));
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

  // Tensors over columns that they read for each score.
  double columns_read(const std::vector<ExprId>& roots) {
    const auto all = ir::reachable(dag_, roots);
    return static_cast<double>(std::ranges::count_if(all, [this](ExprId id) {
      return dag_[id].is(Op::load_) && dependence_[id].column && !dependence_[id].row;
    }));
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
    if (!divides) return rewrite::cost_for_each_score(node);
    if (!dag_.is_constant(node.operands[1])) {
      return node.is(Op::div_) ? kQuotient : rewrite::cost_for_each_score(node);
    }
    return node.is(Op::div_) ? 1 : kDivision;
  }

  const ir::Dag& dag_;
  masks::Dependence dependence_;
};

// The share of the scores that are computed, where inputs decide it. Segments are taken to have
// equal lengths. A tile sees whole blocks of its own segment, or of both if its rows are of two
// segments.
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
        masks::band_share(each, masks::analyzed(segments->attention, subject.context())->band());
    const double columns = length * share + work.queries + work.keys / 2;
    return std::min(1.0, rows * columns / work.scores);
  }
  const auto& lists = block_lists(subject.mask());
  if (!lists || !lists->assumed) return 1;
  const double listed = lists->listed / static_cast<double>(lists->tiles * lists->pages);
  return std::min(1.0, listed * static_cast<double>(d[Dim::Skv]) * rows / work.scores);
}

// Lengths that are written as masks of values are half, as cuDNN's strategy for them assumes.
double share_of_padding(Subject& subject) {
  if (!subject.padding()) return 1;
  const ir::Attention& own = subject.attention();
  const ir::Attention& padded = subject.padding()->attention;
  return (padded.lengths_q && !own.lengths_q ? 0.5 : 1) *
         (padded.lengths_kv && !own.lengths_kv ? 0.5 : 1);
}

// Few operations are done beside products, many take their own time; masks of many are loops.
double of_many(double operations, double hidden, double ms) {
  return std::max(0.0, operations - hidden) * ms;
}

// Time that the operations on each computed score take, in ms.
double of_modification(const ir::Attention& attention, const target::Context& context,
                       Operations& operations) {
  const target::Figures& figures = *context.gpu.figures;
  double ms = !attention.is_random() ? 0 : context.backward() ? kRandomAgain : kRandom;
  if (attention.dag[attention.score].is(Op::score_)) return ms;
  const double count = operations.of({attention.score});
  ms += figures.native_modified + figures.native_operation * count +
        of_many(count, kHidden, kOfMany) +
        figures.native_column * operations.columns_read({attention.score});
  return operations.reads_table(attention.score) ? ms + figures.native_table : ms;
}

// The blocks of threads take equal tiles in turns; the last turn may leave some idle.
double last_turn(const NativeWork& work, const target::Gpu& gpu) {
  const double items = work.tiles * work.splits, turns = items / gpu.multiprocessors;
  const double mean = work.scores / work.tiles;
  const double even = work.most > 0 ? std::min(1.0, mean / work.most) : 1;
  return 1 + gpu.figures->native_turn * even * (std::ceil(turns) / turns - 1);
}

double lists_ms(const NativeWork& work, const target::Gpu& gpu) {
  if (!work.lists) return 0;
  const double operations_in_a_ms = gpu.multiprocessors * gpu.lanes * gpu.clock * 1e6;
  return gpu.figures->native_listing + predicted_ms_of_moving(work.lists->bytes, gpu) -
         predicted_ms_of_moving(0, gpu) +
         (kLookedAt * work.lists->scores + kOfCell * work.lists->cells) / operations_in_a_ms;
}

// How many times as long as on an H200 what takes each multiprocessor as many clocks takes.
double slowdown_of_clocks(const target::Gpu& gpu) {
  const target::Gpu h200;
  return h200.multiprocessors * h200.clock / (gpu.multiprocessors * gpu.clock);
}

// Time of a score by products of warps alone, in ms, by the widths of q and v together.
double products_of_warps(double width, bool backward, const target::Gpu& gpu) {
  // Two operations for each product: q k and p v; backward q k, ds k, ds q, do v and p do.
  const double flop = (backward ? 5 : 2) * width;
  return flop / (gpu.share_of_warps * gpu.matrix_rate * 1e9);
}

// Time of a score by kernels of warps, in ms, from that on an H200. What is beside products there,
// mostly reads of shared memory, takes as many clocks on each GPU. Both overlap in part: together
// they take the root of the sum of squares. By published times FlashAttention-2 has 72 % of the
// rate of products on an A100, and 91 to 97 % on cards that make a quarter as many in a clock.
double score_of_warps(double on_h200, double width, bool backward, const target::Gpu& gpu) {
  const double alone = products_of_warps(width, backward, target::Gpu());
  const double beside = std::sqrt(std::max(0.0, on_h200 * on_h200 - alone * alone));
  return std::hypot(products_of_warps(width, backward, gpu), beside * slowdown_of_clocks(gpu));
}

// What the scores of a program take of the whole GPU, beside memory.
struct Computing {
  double products = 0, others = 0, rows = 0;  // ms
};

Computing computing(Subject& subject, const NativeWork& work, double share) {
  const ir::Attention& attention = subject.attention();
  const target::Context& context = subject.context();
  const target::Gpu& gpu = context.gpu;
  const target::Figures& figures = *gpu.figures;
  Operations operations(attention);
  const double scores = share * work.scores;
  const double masked = work.at_most ? kMaskedOfLists * scores : work.masked;
  const double scalar = scalar_slowdown(gpu);
  Computing all;
  // Tiles of one warp group that are for few rows have a rate of their own.
  const bool is_few = work.groups == 1 && work.rate < 1 && !work.of_warps;
  const double few = is_few ? figures.native_few * work.rate : 1;
  const bool in_pages = attention.layouts.at("k").kind == ir::LayoutKind::paged;
  const double products = context.backward() ? figures.native_backward
                          : in_pages         ? figures.native_in_pages
                                             : 1;
  // Backwards and kernels of warps widen rows.
  const bool in_8_bits = attention.quantize && !context.backward() && !work.of_warps;
  const double on_h200 = of_score(work.width, in_8_bits, figures) * few / work.rate * products;
  all.products = scores * (work.of_warps ? score_of_warps(on_h200 / target::Gpu().share_of_warps,
                                                          work.width, context.backward(), gpu)
                                         : on_h200 * matrix_slowdown(gpu));
  const double count = operations.of(attention.masks);
  all.others =
      ((of_modification(attention, context, operations) + figures.native_operation * work.learned) *
           scores +
       (figures.native_mask * count + of_many(count, kHiddenOfMask, kOfLoop) +
        of_many(operations.columns_read(attention.masks), kHiddenReads, kOfRead)) *
           masked) *
      scalar;
  all.rows = (context.backward() ? figures.native_backward_row : figures.native_row) /
             target::Gpu().multiprocessors * work.rows * work.tiles * work.splits *
             (work.width / kWidthOfRows) * scalar;
  return all;
}

// Bytes copied in a ms by the whole GPU, and by one block of threads alone; the bytes of an item
// that are on their way at once arrive with the first ones.
struct Copies {
  double rate = 0, alone = 0, in_flight = 0;

  double alone_ms(double bytes) const { return std::max(0.0, bytes - in_flight) / alone; }
  // The time of equal items side by side.
  double turn_ms(double items, double bytes) const {
    return std::max(items * bytes / rate, alone_ms(bytes));
  }
};

// Blocks of threads copy so many equal items in turns: the last turn has fewer of them.
double copying_ms(double bytes, double items, const Copies& copies, double processors) {
  const double full = std::floor(items / processors), rest = items - full * processors;
  return full * copies.turn_ms(processors, bytes / items) +
         (rest > 0 ? copies.turn_ms(rest, bytes / items) : 0);
}

// What keys and values take to be read from memory, and to be copied from the L2 cache; if some
// tiles have more of them than others, the longest end last.
double memory_ms(const ir::Attention& attention, const NativeWork& work, double share,
                 const target::Gpu& gpu) {
  if (work.tiles == 0 || work.copied == 0) return 0;
  const target::Figures& figures = *gpu.figures;
  const double scale = gpu.bandwidth / target::Gpu().bandwidth;
  const double processors = gpu.multiprocessors;
  const double items = work.scheduled ? processors : work.tiles * work.splits;
  const double active = std::min(processors, items);
  const double read = share * work.read + bytes_of_rows(attention), copied = share * work.copied;
  const ir::Dims& d = attention.dims;
  const double of_value =
      attention.values_of_keys
          ? 0
          : static_cast<double>(size_of(attention.dtype_of("v"))) * static_cast<double>(d[Dim::Dv]);
  const double of_key = static_cast<double>(bytes_of_row(attention, "k")) + of_value;
  // What one block of threads has on its way, and how long that takes, are alike on all GPUs.
  const double alone = std::min(figures.native_alone, of_key * figures.native_alone_keys);
  const double narrow = work.width <= kNarrow ? figures.native_narrow : 1;
  const Copies of_memory{scale * figures.bandwidth / narrow, alone, figures.native_in_flight};
  const Copies of_cache{figures.native_cached / slowdown_of_clocks(gpu), alone,
                        figures.native_in_flight};
  const double memory = copying_ms(read, items, of_memory, processors) +
                        predicted_ms_of_reading(read, figures.bandwidth, gpu) -
                        read / figures.bandwidth / scale;
  const double cached = copying_ms(copied, items, of_cache, processors);
  const double all_pieces =
      share * (work.pieces * figures.native_piece + work.gathered * figures.native_gathered);
  const double pieces = all_pieces / active;
  const double mean = copied / items;
  const double longest =
      work.scheduled ? mean : mean * work.most / (share * work.scores / work.tiles);
  const double last = work.most > 0 ? longest * work.last / work.most : 0;
  const double uneven = std::max(0.0, last - mean) / alone;
  return std::max(std::max({memory, cached, pieces}) + figures.native_last * uneven,
                  std::max(of_memory.alone_ms(longest), all_pieces / copied * longest));
}

double launches_ms(const NativeWork& work, bool backward, const target::Figures& figures) {
  if (backward) return work.launches * figures.native_backward_launch;
  return figures.native_launch + (work.launches - 1) * figures.native_before +
         (work.scheduled ? figures.native_schedule : 0) +
         work.merged *
             (work.width > kWidestOfOneGroup ? figures.native_merge_wide : figures.native_merge) +
         2 * work.merged * work.merging / figures.native_cached;
}

// Where two warp groups divide the columns of o, parts cost most: each block of threads of a
// schedule takes one, so that those of few tiles are as much longer than a fair share as rounding
// makes them.
double rounded_by_schedule(const NativeWork& work, const target::Gpu& gpu) {
  const bool is_wide = work.width > kWidestOfOneGroup;
  if (!work.scheduled || !is_wide || work.tiles >= gpu.multiprocessors) return 1;
  const double whole = work.most * gpu.multiprocessors / work.scores;
  return std::min(whole, gpu.multiprocessors / (gpu.multiprocessors - work.tiles / 2));
}

}  // namespace

double predicted_ms_of_native(Subject& subject, const NativeWork& work) {
  const ir::Attention& attention = subject.attention();
  const target::Context& context = subject.context();
  const target::Gpu& gpu = context.gpu;
  const target::Figures& figures = *gpu.figures;
  const double share =
      share_of_padding(subject) * (work.at_most ? share_of_lists(subject, work) : 1);
  const Computing of = computing(subject, work, share);
  const double all = of.products + of.others + of.rows;
  // A block of threads computes the longest tile alone.
  const double longest_share = work.scores > 0 ? work.most / work.scores : 0;
  const double at_once = work.is_short ? work.workers : gpu.multiprocessors;
  const double longest = ((of.products + of.others) * longest_share / work.splits +
                          of.rows / std::max(1.0, work.tiles * work.splits)) *
                         at_once;
  double computed = work.scheduled ? all : std::max(all * last_turn(work, gpu), longest);
  const bool unequal = attention.lengths_q || attention.lengths_kv;
  if (unequal && work.splits > 1 && work.most > 0) {  // a part that is longer may begin last
    const double mean = all / std::max(1.0, work.tiles * work.splits) * gpu.multiprocessors;
    const double last = longest * work.last / work.most;
    computed += figures.native_last * std::max(0.0, last - mean);
  }
  double moved = predicted_ms_of_moving(work.moved, gpu) - predicted_ms_of_moving(0, gpu);
  if (work.is_short)
    return launches_ms(work, true, figures) + std::max(std::max(all, longest), moved);
  if (context.backward())
    return launches_ms(work, true, figures) + computed + moved + lists_ms(work, gpu);
  moved *= figures.moving / figures.native_moving;
  const double turns = std::max(1.0, work.tiles * work.splits / gpu.multiprocessors);
  const double part = work.splits > 1 ? figures.native_part * work.width / kWidthOfRows : 0;
  return launches_ms(work, false, figures) + figures.native_item * turns + part * std::ceil(turns) +
         std::max(computed, memory_ms(attention, work, share, gpu)) *
             rounded_by_schedule(work, gpu) +
         moved + lists_ms(work, gpu);
}

}  // namespace attn::engines
