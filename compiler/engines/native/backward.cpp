#include "compiler/engines/native/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "compiler/codegen/scores.h"
#include "compiler/engines/native/backward_kernel.h"
#include "compiler/engines/native/checks.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/native/row_tiles.h"
#include "compiler/engines/native/skeleton.h"
#include "compiler/engines/native/strength_reduction.h"
#include "compiler/engines/native/unpaged.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/support/text.h"
#include "compiler/target/capabilities.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostColumns = 256;  // Dqk, Dv
constexpr double kMostWordBytes = 0x1p36;   // of sums of learned tensors
constexpr double kOfSum = 2;                // operations of a sum that a thread keeps

class NativeBackward {
 public:
  NativeBackward(const ir::Attention& whole, const Form& form, const masks::Axes& mask_axes,
                 const RowTile& tile, const target::Context& context)
      : kernel_(whole, form, tile),
        mask_axes_(mask_axes),
        most_shared_(room_of(tile, context)),
        at_once_(context.gpu.multiprocessors * static_cast<double>(tile.resident)),
        deadline_(context.deadline.get()) {}

  // Blocks of scores.
  Result<double> work() {
    ATTN_RETURN_IF_ERROR(list_blocks());
    return kernel_.blocks.blocks;
  }

  // Scores for the rate of the tile; infinite if it serves none.
  double time_of_scores() {
    if (!list_blocks().ok()) return std::numeric_limits<double>::infinity();
    make_expressions();
    if (table() && !kernel_.expressions.table) return std::numeric_limits<double>::infinity();
    return kernel_.walked_blocks() * static_cast<double>(kernel_.tile.rows * kernel_.tile.keys) /
           kernel_.tile.rate;
  }

  // Makes the program; called after work().
  Result<NativeProgram> make() && {
    make_expressions();
    kernel_.place_parts();
    divide();
    kernel_.blocks_of_threads =
        std::min(static_cast<std::int64_t>(at_once_), kernel_.items() + kernel_.parts());
    LearnedGradients learned;
    if (const gradient::Derivatives of_sinks = without_scores(); !of_sinks.tensors.empty()) {
      ATTN_ASSIGN(learned, learned_gradients(of_sinks));
    }
    NativeProgram made{program_of(kernel_, learned), {}, {}};
    if (kernel_.divides() && !check_outputs(made.program).ok()) {  // sums of parts are one more
      kernel_.division = {}, kernel_.made_division = {};
      made.program = program_of(kernel_, learned);
    }
    ATTN_RETURN_IF_ERROR(check_outputs(made.program));
    ATTN_RETURN_IF_ERROR(check_words());
    made.work = work_of_kernel(made.program);
    codegen::check_scores(kernel_.whole, made.program);
    ATTN_RETURN_IF_ERROR(check_program(kernel_.whole, made.program));
    return made;
  }

 private:
  // A backward has five products where a forward has two, and less that is computed meanwhile.
  static constexpr double kProducts = 3;

  // Lists blocks. Where inputs decide what masks show, the kernels compute those of a band, or the
  // GPU makes the lists, as far as it can.
  Status list_blocks() {
    if (kernel_.tile.is_short) return list_all();
    if (masks_read_inputs(kernel_.attention) && !kernel_.ordered()) {
      ATTN_ASSIGN(kernel_.blocks,
                  row_blocks(kernel_.attention, {}, kernel_.tile, false, deadline_));
      const bool shared = !mask_axes_.head || kernel_.heads_of_key() == 1;
      if (kernel_.blocks.masked && shared)
        kernel_.band = closed_band(kernel_.attention, ir::Op::row_, deadline_);
      if (kernel_.band) return {};
      kernel_.blocks.axes = mask_axes_;
      kernel_.made_lists.emplace(kernel_.dims, kernel_.blocks, kernel_.tile,
                                 static_cast<std::int64_t>(at_once_));
      if (kernel_.blocks.masked && kernel_.made_lists->can_be_made()) return {};
      kernel_.made_lists.reset();
    }
    ATTN_ASSIGN(kernel_.blocks, row_blocks(kernel_.attention, mask_axes_, kernel_.tile,
                                           kernel_.ordered(), deadline_));
    return {};
  }

  // Kernels of one launch walk all rows and keys of a head, also those that lists leave out, so
  // that they mask scores wherever there is a mask.
  Status list_all() {
    const bool by_inputs = masks_read_inputs(kernel_.attention);
    ATTN_ASSIGN(kernel_.blocks,
                row_blocks(kernel_.attention, by_inputs ? masks::Axes() : mask_axes_, kernel_.tile,
                           false, deadline_));
    kernel_.blocks.masked = !kernel_.attention.masks.empty();
    return {};
  }

  // With a captured table beside the rows, where one is copied and has room.
  void make_expressions() {
    kernel_.expressions =
        gradient_expressions_of(kernel_.derivatives, kernel_.blocks.masked, table());
    if (kernel_.shared_bytes() <= most_shared_) return;
    kernel_.expressions =
        gradient_expressions_of(kernel_.derivatives, kernel_.blocks.masked, std::nullopt);
  }

  // Warp groups copy it by TMA. Kernels of one launch hold that of a head, which all batches read.
  std::optional<Table> table() const {
    const ir::Attention& attention = kernel_.attention;
    if (!kernel_.tile.of_warps) return table_of(attention, attention.score);
    if (!kernel_.tile.is_short || attention.dims[Dim::Sq] > kernel_.tile.rows) return std::nullopt;
    const std::optional<Table> table = table_of(attention, attention.score, kAlignedForPairs);
    return table && table->batches == 1 ? table : std::nullopt;
  }

  // Derivatives of learned tensors that only sinks read.
  gradient::Derivatives without_scores() const {
    gradient::Derivatives rest = kernel_.derivatives;
    std::erase_if(rest.tensors, [](const auto& tensor) { return !tensor.score.empty(); });
    return rest;
  }

  // Divides blocks of keys, unless a part of a learned tensor's gradient is of a head's block of
  // keys, or dk and dv are not computed.
  void divide() {
    if (kernel_.tile.is_short) return;
    if (kernel_.count_of(Reach::heads) > 0 || (!kernel_.wants("dk") && !kernel_.wants("dv")))
      return;
    if (kernel_.made_lists) {
      kernel_.made_division = made_division(kernel_.dims, kernel_.blocks, at_once_);
    } else {
      const KeyBlocks& blocks = kernel_.band ? with_equal_tiles(kernel_.blocks) : kernel_.blocks;
      kernel_.division = row_division(kernel_.dims, blocks, at_once_, kernel_.ordered());
    }
  }

  // Steps of an item, at most.
  double longest() const {
    if (kernel_.tile.is_short)
      return std::ceil(static_cast<double>(kernel_.key_blocks()) / at_once_) * kernel_.steps() /
             static_cast<double>(kernel_.key_blocks());
    if (!kernel_.divides()) return kernel_.longest() * static_cast<double>(kernel_.heads_of_key());
    if (!kernel_.made_lists) return kernel_.division.longest;
    const double share = kernel_.blocks.blocks / static_cast<double>(kernel_.made_division.shares);
    return std::max(share, static_cast<double>(kernel_.made_division.least_steps));
  }

  NativeWork work_of_kernel(const plan::Program& program) const {
    NativeWork work;
    const double blocks = kernel_.tile.is_short ? kernel_.steps() : kernel_.walked_blocks();
    work.scores = blocks * static_cast<double>(kernel_.tile.rows * kernel_.tile.keys);
    work.at_most = kernel_.depends_on_inputs();
    work.rate = kernel_.tile.rate;
    work.of_warps = kernel_.tile.of_warps;
    work.is_short = kernel_.tile.is_short;
    work.workers = at_once_;
    work.rows = work.queries = static_cast<double>(kernel_.tile.keys);
    work.keys = static_cast<double>(kernel_.tile.rows);
    work.most = longest() * static_cast<double>(kernel_.tile.rows * kernel_.tile.keys);
    work.heads = static_cast<double>(kernel_.heads_of_key());
    work.products = kProducts;
    work.moved = moved();
    work.learned = operations_of_learned();
    work.width = static_cast<double>(kernel_.depth() + kernel_.width());
    const bool made = kernel_.made_lists.has_value();
    work.tiles = static_cast<double>(kernel_.items() + (made ? 0 : kernel_.parts()));
    work.launches = launches_of(program);
    if (kernel_.made_lists) work.lists = work_of(kernel_.made_lists->sizes(), kernel_.attention);
    return work;
  }

  // Bytes that are moved before the products and after them: sums of dq are zeroed and read, dq is
  // written, `o` and `do` are read, which a sigmoid does without. Lists that the GPU makes mostly
  // have few parts.
  double moved() const {
    if (kernel_.tile.is_short)
      return kernel_.bytes_of_tensors() + bytes_of_learned() + bytes_of_pages(kernel_.whole);
    const std::int64_t sums =
        kernel_.wants("dq") ? 8 * kernel_.depth() + 2 * kernel_.dims[Dim::Dqk] : 0;
    const std::int64_t parts = kernel_.made_lists ? 0 : 8 * kernel_.key_sums();
    return static_cast<double>(parts) +
           static_cast<double>(kernel_.heads() * kernel_.dims[Dim::Sq]) *
               static_cast<double>(
                   sums + (kernel_.attention.is_pointwise() ? 0 : 4 * kernel_.dims[Dim::Dv])) +
           (kernel_.rows ? bytes_of_widening(kernel_.attention) : 0) + bytes_of_learned() +
           bytes_of_pages(kernel_.whole);
  }

  // Words are zeroed and read, gradients that the products write are zeroed.
  double bytes_of_learned() const {
    double bytes = 16 * static_cast<double>(kernel_.words);
    for (const LearnedPart& part : kernel_.expressions.parts) {
      const auto size = static_cast<std::int64_t>(
          size_of(kernel_.whole.find_tensor(kernel_.tensor_of(part))->dtype));
      bytes += static_cast<double>(size * kernel_.elements_of(kernel_.tensor_of(part)));
    }
    return bytes;
  }

  // Operations for each score.
  double operations_of_learned() const {
    double operations = 0;
    for (std::size_t i = 0; i < kernel_.expressions.parts.size(); ++i) {
      const LearnedPart& part = kernel_.expressions.parts[i];
      operations += kernel_.summed_part() == i
                        ? kOfSum
                        : operations_of(part.reach) * static_cast<double>(part.turns());
    }
    return operations;
  }

  // All gradients are of one step, which has a limit.
  Status check_outputs(const plan::Program& program) const {
    for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
      const std::size_t written = step->outputs.size() + step->zeroed.size();
      const std::size_t limit = kernel_.most_outputs();
      if (written <= limit) continue;
      const auto learned = kernel_.by_scores();
      const std::size_t most = learned.size() - (written - limit);
      return unsupported(
          kernel_.whole.find_tensor(learned[most]->tensor)->pos,
          fmt::format("attnc's backward kernels compute the gradients of up to {} learned tensors "
                      "that this score reads, not of {}",
                      most, learned.size()),
          "list fewer of them in `grad`, make several one tensor with an index more, or compute "
          "them by `--engine cudnn`");
    }
    return {};
  }

  Status check_words() const {
    const double bytes = 8 * static_cast<double>(kernel_.words);
    if (bytes <= kMostWordBytes) return {};
    const support::Excess text = support::excess(bytes, kMostWordBytes);
    return unsupported(kernel_.attention.pos,
                       fmt::format("the sums of the learned tensors of `{}` take {} of memory, and "
                                   "the limit is {}",
                                   kernel_.attention.name, text.amount, text.most));
  }

  static double launches_of(const plan::Program& program) {
    std::size_t all = 0;
    for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
      all += step->launches.size();
    }
    return static_cast<double>(all);
  }

  BackwardKernel kernel_;
  const masks::Axes mask_axes_;
  const std::int64_t most_shared_;    // bytes of a block of threads
  const double at_once_;              // blocks of threads
  target::Deadline* const deadline_;  // may be null
};

// Weights over a sum keep two derivatives of each score, and no registers are left for more.
Status check_held(const ir::Attention& attention, const gradient::Derivatives& derivatives) {
  const std::vector<LearnedPart> parts = learned_parts(derivatives);
  const auto held = std::ranges::find(parts, true, &LearnedPart::held);
  if (held == parts.end()) return {};
  const std::string& tensor = attention.dag.symbol_of(held->gather.load);
  return unsupported(
      attention.find_tensor(tensor)->pos,
      fmt::format("attnc's backward kernels do not compute the gradient of `{}` beside a weight "
                  "over a sum: it is not a mere term of the score",
                  tensor),
      "list other gradients alone, as in `grad q, k, v`");
}

Status check_learned(const ir::Attention& attention) {
  const gradient::Derivatives derivatives = gradient::differentiate(attention);
  for (const gradient::TensorGradient& learned : derivatives.tensors) {
    if (learned.score.empty() || learned.sink.empty()) continue;
    return unsupported(
        attention.find_tensor(learned.tensor)->pos,
        fmt::format("attnc's backward kernels do not compute the gradient of `{}`: the score and "
                    "the sink both read it",
                    learned.tensor),
        attention.quantize ? "list other gradients alone, as in `grad q, k, v`"
                           : "list other gradients alone, as in `grad q, k, v`, or compute it by "
                             "`--engine cudnn`");
  }
  return attention.quotient ? check_held(attention, derivatives) : Status();
}

}  // namespace

Status check_backward(const ir::Attention& attention, bool of_warps) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_gradients(attention));
  ATTN_RETURN_IF_ERROR(check_clauses(attention));
  const ir::Dims& d = attention.dims;
  if (static_cast<double>(d[Dim::B] * d[Dim::Hq]) *
          static_cast<double>(d[Dim::Sq] + kCell + kMostRowsOfBlock) >
      0x1p31) {
    return unsupported(attention.pos, "attnc's backward kernels number up to 2^31 rows of heads");
  }

  ATTN_RETURN_IF_ERROR(check_learned(attention));
  for (const Dim dim : {Dim::Dqk, Dim::Dv}) {
    ATTN_RETURN_IF_ERROR(check_most_depth(attention, dim, kMostColumns, "backward"));
  }
  if (attention.quantize) ATTN_RETURN_IF_ERROR(check_narrow_backward(attention));
  return of_warps ? Status() : check_rows_of_groups(attention, true);
}

namespace {

// What the kernels compute of an attention.
Form form_of(const ir::Attention& attention) {
  return whole_form(with_reduced_strength(without_pages(attention)));
}

bool has_diagonals(const ir::Attention& attention) {
  const std::vector<LearnedPart> learned = learned_parts(gradient::differentiate(attention));
  return std::ranges::count(learned, Reach::diagonal, &LearnedPart::reach) > 0;
}

// The tiles, the best first. That of the most rows is the last where masks show so few rows of a
// block of keys that its blocks of rows have more scores, for their rate, than those of the next;
// or where a table that scores read has no room beside them.
std::vector<RowTile> ordered_tiles(const ir::Attention& attention, const Form& whole,
                                   const masks::Axes& mask_axes, const target::Context& context) {
  std::vector<RowTile> tiles = row_tiles(attention, context, has_diagonals(whole.attention));
  if (tiles.size() < 2 || tiles[0].rows != kMostRowsOfBlock) return tiles;
  const auto time = [&](const RowTile& tile) {
    return NativeBackward(attention, whole, mask_axes, tile, context).time_of_scores();
  };
  const double first = time(tiles[0]);
  if (std::isinf(first) || time(tiles[1]) < first)
    std::rotate(tiles.begin(), tiles.begin() + 1, tiles.end());
  return tiles;
}

Error no_tile(const ir::Attention& attention, const target::Context& context) {
  if (context.rewrites.long_forms)
    return unsupported(attention.pos, "no tile of attnc's backward kernel fits this score");
  constexpr const char* kFix = "leave out `--skeleton short`, which allows this form alone";
  if (attention.quantize) {
    return unsupported(attention.quantize->pos,
                       "attnc's backward of one launch computes no 8-bit floats", kFix);
  }
  const ir::Dims& dims = attention.dims;
  const std::int64_t most = most_short_keys(dims);
  return unsupported(
      attention.pos,
      fmt::format("no tile of attnc's backward of one launch fits {} keys, head dimensions {} and "
                  "{}{}",
                  dims[Dim::Skv], dims[Dim::Dqk], dims[Dim::Dv],
                  dims[Dim::Skv] > most ? fmt::format(": with these, there are up to {} keys", most)
                                        : ", and this score"),
      kFix);
}

}  // namespace

Result<NativeProgram> lower_short_backward(const ir::Attention& attention,
                                           const masks::Axes& mask_axes,
                                           const target::Context& context, std::size_t refused) {
  const Form whole = form_of(attention);
  const std::vector<RowTile> tiles =
      short_tiles(attention, context, has_diagonals(whole.attention));
  if (refused >= tiles.size()) return no_tile(attention, context);
  NativeBackward of_whole(attention, whole, mask_axes, tiles[refused], context);
  ATTN_RETURN_IF_ERROR(of_whole.work().status());
  return std::move(of_whole).make();
}

std::size_t count_of_short_tiles(const ir::Attention& attention, const target::Context& context) {
  if (attention.dims[Dim::Skv] > kMostShortKeys) return 0;
  const Form whole = form_of(attention);
  return short_tiles(attention, context, has_diagonals(whole.attention)).size();
}

Result<NativeProgram> lower_backward(const ir::Attention& attention, const masks::Axes& mask_axes,
                                     const target::Context& context, std::size_t refused) {
  const Form whole = form_of(attention);
  const std::vector<RowTile> tiles = ordered_tiles(attention, whole, mask_axes, context);
  if (refused >= tiles.size()) return no_tile(attention, context);

  NativeBackward of_whole(attention, whole, mask_axes, tiles[refused], context);
  const Result<double> work = of_whole.work();
  const bool learns = !gradient::differentiate(attention).tensors.empty();
  // Rows that were widened are those of all classes.
  const bool has_classes = !learns && !attention.quantize;
  const auto part = has_classes ? classes_of(whole.attention, context) : std::nullopt;
  const auto classes = readable_classes(whole.attention, part, {"q", "k", "v", "do"});
  if (classes) {
    const masks::Axes axes = masks::analyzed(classes->attention, context)->axes();
    NativeBackward of_classes(attention, *classes, masks::varying(axes, classes->attention.dims),
                              tiles[refused], context);
    const Result<double> less = of_classes.work();
    if (less.ok() && (!work.ok() || *less < *work)) {
      Result<NativeProgram> made = std::move(of_classes).make();
      if (made.ok()) made->parts = {to_text(*part)};
      return made;
    }
  }

  ATTN_RETURN_IF_ERROR(work.status());
  return std::move(of_whole).make();
}

}  // namespace attn::engines::native
