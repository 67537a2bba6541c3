#include "compiler/lowering/native/backward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "compiler/derive/scores.h"
#include "compiler/kernels/kernel_text.h"
#include "compiler/kernels/sources.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/controls.h"
#include "compiler/lowering/common/interface.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/lowering/cudnn/operands.h"
#include "compiler/lowering/cudnn/vectors.h"
#include "compiler/lowering/native/checks.h"
#include "compiler/lowering/native/classes.h"
#include "compiler/lowering/native/kernel.h"
#include "compiler/lowering/native/learned.h"
#include "compiler/lowering/native/maps.h"
#include "compiler/lowering/native/row_blocks.h"
#include "compiler/lowering/native/row_lists.h"
#include "compiler/lowering/native/strength_reduction.h"
#include "compiler/lowering/unfused/unfused_backward.h"
#include "compiler/lowering/unfused/unfused_parts.h"
#include "compiler/passes/analysis/mask_analysis.h"
#include "compiler/support/gigabytes.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::lowering::native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostColumns = 256;        // Dqk, Dv
constexpr std::int64_t kMostShared = 227 * 1024;  // bytes of a block of threads
constexpr double kMostWordBytes = 0x1p36;         // of sums of learned tensors

std::int64_t panels(std::int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// As BackwardStages of attn/backward.cuh, aligned to 1024 bytes. `diagonals`: sums of these.
std::int64_t shared_bytes(const ir::Attention& attention, const RowTile& tile, bool table,
                          bool diagonals) {
  const ir::Dims& dims = attention.dims;
  const std::int64_t depth = panels(dims[Dim::Dqk]), width = panels(dims[Dim::Dv]);
  const std::int64_t of_keys = 2 * tile.keys * (depth + width);
  const std::int64_t of_scores = table ? 2 * tile.keys : tile.keys;
  const std::int64_t of_rows = 2 * tile.rows * (depth + width + of_scores) + 8 * tile.rows;
  const std::int64_t of_random = attention.is_random() ? 4 * (16 * tile.keys + 16) : 0;
  const std::int64_t of_diagonals = diagonals ? tile.keys / 16 * 32 * (tile.rows + 8) : 0;
  return 1024 + of_keys + kStagesOfBackward * of_rows + 4 * tile.rows * depth + of_random +
         of_diagonals + 16 * 9 + 64 + 16 * 8;
}

// Those that fit in shared memory, the best first: fewer rows for expressions that spill otherwise.
// Up to 128 columns, registers hold the sums of 128 keys. Above, both warp groups share 64, and
// there are six products rather than five. The rates of 48 and 32 rows are not measured.
std::vector<RowTile> tiles_of(const ir::Attention& attention, bool diagonals) {
  const ir::Dims& dims = attention.dims;
  const bool wide = std::max(dims[Dim::Dqk], dims[Dim::Dv]) > 128;
  const std::int64_t keys = wide ? 64 : 128;
  const double best = wide ? 0.72 : 1;
  std::vector<RowTile> tiles = {{64, keys, best}, {48, keys, 0.9 * best}, {32, keys, 0.7 * best}};
  // Warp groups that divide 64 columns of dq by rows need multiples of 32.
  if (panels(dims[Dim::Dqk]) == 64 && !wide) tiles.erase(tiles.begin() + 1);
  std::erase_if(tiles, [&](const RowTile& tile) {
    return shared_bytes(attention, tile, false, diagonals) > kMostShared;
  });
  return tiles;
}

class NativeBackward {
 public:
  NativeBackward(const ir::Attention& whole, const Form& form, const passes::Axes& mask_axes,
                 const RowTile& tile, const planning::Gpu& gpu)
      : whole_(whole),
        derivatives_(gradient::differentiate(form.attention)),
        attention_(derivatives_.attention),
        dims_(attention_.dims),
        statistics_(form.statistics),
        mask_axes_(mask_axes),
        tile_(tile),
        gpu_(gpu),
        gradients_(gradient_names(whole)) {}

  // Blocks of scores.
  Result<double> work() {
    ATTN_RETURN_IF_ERROR(list_blocks());
    return blocks_.blocks;
  }

  // After work().
  Result<NativeProgram> make() && {
    splits_ = splits();
    expressions_ = gradient_expressions_of(derivatives_, blocks_.masked, true);
    if (shared_bytes() > kMostShared) {
      expressions_ = gradient_expressions_of(derivatives_, blocks_.masked, false);
    }
    place_parts();
    blocks_of_threads_ = std::min(static_cast<std::int64_t>(gpu_.multiprocessors), items());
    LearnedGradients learned;
    if (const gradient::Derivatives of_sinks = without_scores(); !of_sinks.tensors.empty()) {
      ATTN_ASSIGN(learned, learned_gradients(of_sinks));
    }
    NativeProgram made{program(learned), {}, {}};
    ATTN_RETURN_IF_ERROR(check_outputs(made.program));
    ATTN_RETURN_IF_ERROR(check_words());
    made.work.scores = blocks_.blocks * static_cast<double>(tile_.rows * tile_.keys);
    made.work.rate = tile_.rate;
    made.work.rows = made.work.queries = static_cast<double>(tile_.keys);
    made.work.keys = static_cast<double>(tile_.rows);
    made.work.most = longest() * static_cast<double>(tile_.rows * tile_.keys * heads_of_item());
    made.work.heads = static_cast<double>(heads_of_item());
    made.work.products = kProducts;
    made.work.moved = moved();
    made.work.learned = operations_of_learned();
    made.work.width = static_cast<double>(depth() + width());
    made.work.tiles = static_cast<double>(items());
    made.work.launches = launches_of(made.program);
    if (made_lists_) made.work.lists = work_of(made_lists_->sizes(), attention_);
    derive::check_scores(whole_, made.program);
    ATTN_RETURN_IF_ERROR(check_program(whole_, made.program));
    return made;
  }

 private:
  static constexpr const char* kCopied[] = {"q", "k", "v", "do"};
  static constexpr const char* kCounter = "native.counter";
  static constexpr const char* kExponents = "native.exponents";
  static constexpr const char* kDeltas = "native.deltas";
  static constexpr const char* kSums = "native.sums";
  static constexpr const char* kKeySums = "native.key_sums";
  static constexpr const char* kTurns = "native.turns";
  static constexpr const char* kParts = "native.parts";
  static constexpr const char* kWords = "native.words";

  static constexpr std::int64_t kHeadsOfSection = 4;  // of keys; their queries stay in the L2 cache
  static constexpr double kUneven = 1.5, kVeryUneven = 3;  // the longest list: times the mean
  static constexpr double kGainOfSplits = 0.95;            // at least, for more parts
  // What the beginning and the end of an item take, and sums of parts, in steps of 64 rows.
  static constexpr double kStepsOfItem = 4, kStepsOfPart = 8;
  static constexpr double kShort = 24;           // blocks of rows, on average
  static constexpr std::int64_t kThreads = 256;  // of prepare and convert
  // As in attn/backward.cuh.
  static constexpr std::int64_t kThreadsOfRow = 16, kConvertedRows = 32, kPartsOfBlock = 8;
  static constexpr std::int64_t kWordsOfLargest = 3, kWordsOfElement = 9;
  // A backward has five products where a forward has two, and less that is computed meanwhile.
  static constexpr double kProducts = 3;

  // With lists that the GPU makes where inputs decide what masks show, as far as it can.
  Status list_blocks() {
    if (masks_read_inputs(attention_) && !ordered()) {
      ATTN_ASSIGN(blocks_, row_blocks(attention_, {}, tile_, false));
      blocks_.axes = mask_axes_;
      made_lists_.emplace(dims_, blocks_, tile_, gpu_.multiprocessors);
      if (blocks_.masked && made_lists_->can_be_made()) return {};
      made_lists_.reset();
    }
    ATTN_ASSIGN(blocks_, row_blocks(attention_, mask_axes_, tile_, ordered()));
    return {};
  }

  bool wants(const char* gradient) const {
    return std::ranges::find(gradients_, gradient) != gradients_.end();
  }
  // Of learned tensors that sinks read.
  gradient::Derivatives without_scores() const {
    gradient::Derivatives rest = derivatives_;
    std::erase_if(rest.tensors, [](const auto& tensor) { return !tensor.score.empty(); });
    return rest;
  }
  // Of learned tensors that scores read.
  std::vector<const gradient::TensorGradient*> by_scores() const {
    std::vector<const gradient::TensorGradient*> found;
    for (const gradient::TensorGradient& tensor : derivatives_.tensors) {
      if (!tensor.score.empty()) found.push_back(&tensor);
    }
    return found;
  }
  std::int64_t elements_of(const std::string& tensor) const {
    return native::elements_of(whole_, tensor);
  }
  const std::string& tensor_of(const LearnedPart& part) const {
    return derivatives_.attention.dag.symbol_of(part.gather.load);
  }
  // The first part of a tensor that scores read.
  const LearnedPart& part_of(const gradient::TensorGradient& tensor) const {
    return *std::ranges::find(expressions_.parts, tensor.tensor,
                              [this](const LearnedPart& part) { return tensor_of(part); });
  }
  std::int64_t count_of(Reach reach) const {
    return std::ranges::count(expressions_.parts, reach, &LearnedPart::reach);
  }
  // Whether integers count units that the largest rows of dO and v give.
  bool shares() const {
    return std::ranges::any_of(expressions_.parts, [](const LearnedPart& part) {
      return part.bits > 0 && (part.reach == Reach::shared || part.reach == Reach::diagonal);
    });
  }
  bool diagonals() const { return count_of(Reach::diagonal) > 0; }
  void place_parts() {
    std::int64_t of_heads = 0, own = 0, sums = 0;
    std::string last;
    for (LearnedPart& part : expressions_.parts) {
      part.elements = elements_of(tensor_of(part));
      if (part.reach == Reach::heads) {
        part.place = of_heads, of_heads += parts_of_learned();
      } else if (part.reach == Reach::own) {
        part.place = own++;
      } else if (part.reach == Reach::shared) {
        part.place = add_words(part.elements);
      } else {
        if (last != tensor_of(part)) sums = add_words(kWordsOfElement * part.elements);
        last = tensor_of(part);
        part.place = part.sums = sums;
      }
      if (part.reach != Reach::diagonal) continue;
      part.elements = heads() * (dims_[Dim::Sq] + dims_[Dim::Skv] - 1);
      part.place = add_words(part.bits > 0 ? part.elements : kWordsOfElement * part.elements);
    }
  }
  // Returns where they begin.
  std::int64_t add_words(std::int64_t words) {
    words_ = std::max(words_, kWordsOfLargest) + words;
    return words_ - words;
  }
  // Of each of its gradients, of all heads.
  std::int64_t parts_of_learned() const { return heads() * blocks_.tiles * kPartsOfBlock; }

  // Those that the kernels make.
  std::vector<std::string> own_gradients() const {
    std::vector<std::string> own;
    for (const char* gradient : {"dq", "dk", "dv"}) {
      if (wants(gradient)) own.emplace_back(gradient);
    }
    for (const gradient::TensorGradient* tensor : by_scores()) {
      own.push_back(gradient::gradient_name(tensor->tensor));
    }
    return own;
  }
  bool lengths() const { return attention_.lengths_q || attention_.lengths_kv; }
  // Whether no block of rows has rows past the last one.
  bool rows_fit() const {
    if (made_lists_ || lengths()) return false;
    const bool fit = std::ranges::all_of(blocks_.runs, [this](const KeyRun& run) {
      return run.key + run.blocks * tile_.rows <= dims_[Dim::Sq];
    });
    return fit && std::ranges::all_of(blocks_.lists, [this](const TileList& list) {
             return list.blocks >= (heads_of_item() == 1 ? 2 : 1);
           });
  }
  // Of heads of keys. Much longer lists than others begin before all others, so that the last of
  // them does not end alone.
  std::int64_t section() const {
    if (batches_first()) return dims_[Dim::B];
    if (!blocks_.sorted && !made_lists_) return 1;
    const bool uneven = !made_lists_ && longest() > kVeryUneven * mean();
    return splits_ * (uneven ? dims_[Dim::B] * dims_[Dim::Hkv] : kHeadsOfSection);
  }
  // Sums that batches share stay in the L2 cache while all add to them.
  bool batches_first() const {
    return !ordered() && std::ranges::any_of(expressions_.parts, [this](const LearnedPart& part) {
      const auto& indices = attention_.dag[part.gather.load].operands;
      const auto is_read = [&](ir::Op op) {
        return std::ranges::any_of(indices, [&](ir::ExprId i) { return attention_.dag[i].is(op); });
      };
      return part.reach == Reach::shared && is_read(ir::Op::head_) && !is_read(ir::Op::batch_);
    });
  }
  // Where lists are short or uneven, all rows of a head follow those of another.
  bool heads_outside() const {
    if (ordered() || made_lists_ || heads_of_item() == 1) return false;
    return mean() < kShort || longest() > kUneven * mean();
  }
  // Blocks of rows of a list that is known now, and of a head.
  double longest() const {
    std::int64_t most = 0;
    for (const TileList& list : blocks_.lists) most = std::max(most, list.blocks);
    return static_cast<double>(most);
  }
  double mean() const { return blocks_.blocks / static_cast<double>(heads() * blocks_.tiles); }
  std::int64_t heads() const { return dims_[Dim::B] * dims_[Dim::Hq]; }
  std::int64_t heads_of_key() const { return dims_[Dim::Hq] / dims_[Dim::Hkv]; }
  std::int64_t heads_of_item() const { return heads_of_key() / splits_; }
  std::int64_t items() const { return splits_ * blocks_.tiles * dims_[Dim::B] * dims_[Dim::Hkv]; }

  // Into how many parts the heads that share keys are divided: the fewest of those that take about
  // the shortest time.
  std::int64_t splits() const {
    if (made_lists_ || !by_scores().empty() || (!wants("dk") && !wants("dv"))) return 1;
    std::int64_t best = 1;
    for (std::int64_t splits = 2; splits <= heads_of_key(); ++splits) {
      if (heads_of_key() % splits == 0 && steps_with(splits) < kGainOfSplits * steps_with(best)) {
        best = splits;
      }
    }
    return best;
  }
  // Of a block of threads: those of the longest item, or of its share of all. The last turn leaves
  // some blocks of threads idle, for half an item if lists are uneven.
  double steps_with(std::int64_t splits) const {
    const double items =
        static_cast<double>(splits * blocks_.tiles * dims_[Dim::B] * dims_[Dim::Hkv]);
    const double turns = items / static_cast<double>(gpu_.multiprocessors);
    const double heads = static_cast<double>(heads_of_key()) / static_cast<double>(splits);
    const double idle = mean() * (std::ceil(turns) - turns) + (longest() - mean());
    return std::max(longest(), turns * mean() + 0.5 * idle) * heads +
           (splits > 1 ? kStepsOfPart : kStepsOfItem) * std::max(1.0, turns);
  }
  // Whether sums of dq are added in a fixed order.
  bool ordered() const { return whole_.deterministic && wants("dq"); }
  std::int64_t row_blocks_of_head() const { return ceil_div(dims_[Dim::Sq], tile_.rows); }
  std::int64_t padded_rows() const { return past_all_rows(dims_) + tile_.rows; }
  // By what comes before the products and after them: sums of dq are zeroed and read, dq is
  // written, `o` and `do` are read, which a sigmoid does without.
  double moved() const {
    const std::int64_t sums = wants("dq") ? 8 * depth() + 2 * dims_[Dim::Dqk] : 0;
    const std::int64_t parts = splits_ > 1 ? 8 * key_sums() : 0;
    return static_cast<double>(parts) +
           static_cast<double>(heads() * dims_[Dim::Sq]) *
               static_cast<double>(sums + (attention_.is_sigmoid() ? 0 : 4 * dims_[Dim::Dv])) +
           bytes_of_learned();
  }
  // Words are zeroed and read, gradients that the products write are zeroed.
  double bytes_of_learned() const {
    double bytes = 16 * static_cast<double>(words_);
    for (const LearnedPart& part : expressions_.parts) {
      const auto size =
          static_cast<std::int64_t>(size_of(whole_.find_tensor(tensor_of(part))->dtype));
      bytes += static_cast<double>(size * elements_of(tensor_of(part)));
    }
    return bytes;
  }
  // Of each score.
  double operations_of_learned() const {
    double operations = 0;
    for (const LearnedPart& part : expressions_.parts) operations += operations_of(part.reach);
    return operations;
  }
  // Of all parts, if there are any.
  std::int64_t key_sums() const { return items() * tile_.keys * (depth() + width()); }
  std::int64_t depth() const { return panels(dims_[Dim::Dqk]); }
  std::int64_t width() const { return panels(dims_[Dim::Dv]); }

  std::int64_t shared_bytes() const {
    return native::shared_bytes(attention_, tile_, expressions_.table.has_value(), diagonals());
  }

  // With the steps of learned sinks, which read nothing per score.
  plan::Program program(const LearnedGradients& learned) const {
    std::set<std::string> used = names_read(learned.steps);
    used.insert({"q", "k", "v", "o", "do", "lse"});
    for (const plan::OperandSource& source : expressions_.inputs.operands) {
      if (const auto* param = std::get_if<plan::ParamOperand>(&source))
        used.insert(param->name);
      else
        used.insert(std::get<plan::TensorOperand>(source).name);
    }
    const Controls control = controls(whole_, used);
    plan::Program program;
    program.tensors = backward_tensors(whole_, used, control, gradients_);
    program.internals = control.internals;
    program.steps.assign(control.steps.begin(), control.steps.end());
    std::ranges::copy(learned.internals, std::back_inserter(program.internals));
    std::ranges::copy(learned.steps, std::back_inserter(program.steps));
    for (const ir::Param& param : whole_.params) {
      if (used.contains(param.name)) program.params.push_back({param.name, param.dtype});
    }
    if (own_gradients().empty()) return program;
    plan::KernelStep step{
        .outputs = own_gradients(), .zeroed = {kCounter}, .launches = {}, .source = source()};
    if (!packed_maps().empty()) add_sequence_maps(whole_, packed_maps(), program, step);
    if (made_lists_) made_lists_->add(program, step, kCounter, inputs());
    std::ranges::move(launches(), std::back_inserter(step.launches));
    const auto add = [&](const char* name, std::int64_t elements) {
      program.internals.push_back(plan::internal_tensor(name, DType::f32, {elements}));
    };
    program.internals.push_back(plan::internal_tensor(
        kCounter, DType::i32, {1 + (made_lists_ ? made_lists_->sizes().lists : 0)}));
    for (const char* name : {kExponents, kDeltas}) {
      add(name, heads() * padded_rows());
      step.outputs.emplace_back(name);
    }
    if (wants("dq")) {
      add(kSums, heads() * padded_rows() * depth());
      step.zeroed.emplace_back(kSums);
    }
    if (splits_ > 1) {
      add(kKeySums, key_sums());
      step.outputs.emplace_back(kKeySums);
    }
    if (ordered()) {
      program.internals.push_back(
          plan::internal_tensor(kTurns, DType::i32, {heads() * row_blocks_of_head()}));
      step.zeroed.emplace_back(kTurns);
    }
    if (const std::int64_t of_heads = count_of(Reach::heads); of_heads > 0) {
      add(kParts, of_heads * parts_of_learned());
      step.zeroed.emplace_back(kParts);
    }
    if (words_ > 0) {
      program.internals.push_back(plan::internal_tensor(kWords, DType::i64, {words_}));
      step.zeroed.emplace_back(kWords);
    }
    program.steps.emplace_back(std::move(step));
    return program;
  }

  // All gradients are of one step, which has a limit.
  Status check_outputs(const plan::Program& program) const {
    for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
      const std::size_t written = step->outputs.size() + step->zeroed.size();
      if (written <= plan::kMostOutputs) continue;
      const auto learned = by_scores();
      const std::size_t most = learned.size() - (written - plan::kMostOutputs);
      return unsupported(
          whole_.find_tensor(learned[most]->tensor)->pos,
          fmt::format("attnc's backward kernels compute the gradients of up to {} learned tensors "
                      "that this score reads, not of {}",
                      most, learned.size()),
          "list fewer of them in `grad`, make several one tensor with an index more, or compute "
          "them by `--engine cudnn`");
    }
    return {};
  }
  Status check_words() const {
    const double bytes = 8 * static_cast<double>(words_);
    if (bytes <= kMostWordBytes) return {};
    const support::Excess text = support::excess(bytes, kMostWordBytes);
    return unsupported(attention_.pos,
                       fmt::format("the sums of the learned tensors of `{}` take {} of memory, and "
                                   "the limit is {}",
                                   attention_.name, text.amount, text.most));
  }
  static double launches_of(const plan::Program& program) {
    std::size_t all = 0;
    for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
      all += step->launches.size();
    }
    return static_cast<double>(all);
  }

  std::vector<plan::Launch> launches() const {
    using Tensor = plan::TensorOperand;
    const std::int64_t prepared = heads() * padded_rows() * kThreadsOfRow;
    std::vector<plan::KernelArgument> arguments;
    if (!attention_.is_sigmoid()) arguments = {Tensor{"o"}, Tensor{"do"}, Tensor{"lse"}};
    arguments.insert(arguments.end(), {Tensor{kExponents}, Tensor{kDeltas}});
    add_starts(arguments, has_row_starts(), kRowStarts);
    add_inputs(arguments);
    std::vector<plan::Launch> all;
    all.push_back({.kernel = kPrepareKernel,
                   .grid = {ceil_div(prepared, kThreads), 1, 1},
                   .block = {kThreads, 1, 1},
                   .arguments = std::move(arguments)});
    if (shares()) all.push_back(finding_largest());
    arguments.clear();
    for (const char* name : kCopied) {
      if (!is_packed(name)) arguments.emplace_back(map_of(name));
    }
    if (!packed_maps().empty()) arguments.emplace_back(Tensor{kMaps});
    add_starts(arguments, has_column_starts(), kColumnStarts);
    for (const std::string& name : operands()) arguments.emplace_back(Tensor{name});
    if (expressions_.table) arguments.emplace_back(map_of_rows(*expressions_.table, tile_.rows));
    add_inputs(arguments);
    for (const gradient::TensorGradient* tensor : by_scores()) {
      if (is_zeroed(*tensor)) all.push_back(zero_of(*tensor));
    }
    all.push_back({.kernel = kBackwardKernel,
                   .grid = {blocks_of_threads_, 1, 1},
                   .block = {kThreadsOfBackward, 1, 1},
                   .shared_bytes = shared_bytes(),
                   .arguments = std::move(arguments)});
    for (std::size_t i = 0; i < expressions_.parts.size(); ++i) {
      if (expressions_.parts[i].reach == Reach::diagonal) all.push_back(spreading(i));
    }
    for (const gradient::TensorGradient* tensor : by_scores()) {
      if (part_of(*tensor).reach != Reach::own) all.push_back(sum_of(*tensor));
    }
    if (splits_ > 1) all.push_back(merge());
    if (!wants("dq")) return all;
    arguments = {Tensor{kSums}, Tensor{"dq"}};
    add_starts(arguments, has_row_starts(), kRowStarts);
    add_inputs(arguments);
    all.push_back({.kernel = kConvertKernel,
                   .grid = {heads() * ceil_div(dims_[Dim::Sq], kConvertedRows), 1, 1},
                   .block = {kThreads, 1, 1},
                   .shared_bytes = kConvertedRows * (depth() + 1) * 4,
                   .arguments = std::move(arguments)});
    return all;
  }

  plan::Launch merge() const {
    std::vector<plan::KernelArgument> arguments = {plan::TensorOperand{kKeySums}};
    add_starts(arguments, has_column_starts(), kColumnStarts);
    for (const char* gradient : {"dk", "dv"}) {
      if (wants(gradient)) arguments.emplace_back(plan::TensorOperand{gradient});
    }
    add_inputs(arguments);
    return {.kernel = kMergeKernel,
            .grid = {ceil_div(key_sums() / splits_ / 8, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }
  plan::Launch finding_largest() const {
    using Tensor = plan::TensorOperand;
    const std::int64_t rows =
        heads() * dims_[Dim::Sq] + dims_[Dim::B] * dims_[Dim::Hkv] * dims_[Dim::Skv];
    std::vector<plan::KernelArgument> arguments = {Tensor{"do"}, Tensor{"v"}, Tensor{kWords}};
    add_starts(arguments, has_row_starts(), kRowStarts);
    add_starts(arguments, has_column_starts(), kColumnStarts);
    add_inputs(arguments);
    return {.kernel = kLargestKernel,
            .grid = {ceil_div(rows * kThreadsOfRow, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }
  // What makes the gradient of sums: a block of threads for each element that heads share, or a
  // thread for each that words count.
  plan::Launch sum_of(const gradient::TensorGradient& tensor) const {
    using Tensor = plan::TensorOperand;
    const Tensor gradient{gradient::gradient_name(tensor.tensor)};
    const std::int64_t elements = elements_of(tensor.tensor);
    if (part_of(tensor).reach != Reach::heads) {
      return {.kernel = kernel_of(tensor),
              .grid = {ceil_div(elements, kThreads), 1, 1},
              .block = {kThreads, 1, 1},
              .arguments = {Tensor{kWords}, gradient}};
    }
    std::vector<plan::KernelArgument> arguments = {Tensor{kParts}, gradient};
    add_inputs(arguments);
    return {.kernel = kernel_of(tensor),
            .grid = {elements, 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kThreads * 8,
            .arguments = std::move(arguments)};
  }
  // Adds sums of diagonals to those of the tensor.
  plan::Launch spreading(std::size_t part) const {
    std::vector<plan::KernelArgument> arguments = {plan::TensorOperand{kWords}};
    add_inputs(arguments);
    return {.kernel = spreading_kernel(part),
            .grid = {ceil_div(expressions_.parts[part].elements, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }
  static std::string spreading_kernel(std::size_t part) {
    return fmt::format("{}{}", kDiagonalsKernel, part);
  }

  // Whether not all elements of the gradient are stored.
  bool is_zeroed(const gradient::TensorGradient& tensor) const {
    const std::int64_t scores = heads() * dims_[Dim::Sq] * dims_[Dim::Skv];
    return part_of(tensor).reach == Reach::own &&
           (!attention_.masks.empty() || lengths() || elements_of(tensor.tensor) != scores);
  }
  plan::Launch zero_of(const gradient::TensorGradient& tensor) const {
    return {.kernel = kernel_of(tensor),
            .grid = {ceil_div(elements_of(tensor.tensor), kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = {plan::TensorOperand{gradient::gradient_name(tensor.tensor)}}};
  }
  static std::string kernel_of(const gradient::TensorGradient& tensor) {
    return kGradientKernel + tensor.tensor;
  }

  // Of the backward kernel, in the order of its parameters.
  std::vector<std::string> operands() const {
    std::vector<std::string> names = {kExponents, kDeltas};
    if (wants("dq")) names.emplace_back(kSums);
    if (ordered()) names.emplace_back(kTurns);
    for (const char* gradient : {"dk", "dv"}) {
      if (wants(gradient)) names.emplace_back(gradient);
    }
    if (splits_ > 1) names.emplace_back(kKeySums);
    if (count_of(Reach::heads) > 0) names.emplace_back(kParts);
    if (words_ > 0) names.emplace_back(kWords);
    for (const gradient::TensorGradient* tensor : by_scores()) {
      if (part_of(*tensor).reach == Reach::own)
        names.push_back(gradient::gradient_name(tensor->tensor));
    }
    names.emplace_back(kCounter);
    if (made_lists_) names.insert(names.end(), {kSortedTiles, kRunsOfTiles});
    return names;
  }

  bool has_row_starts() const { return is_packed("q") || is_packed("o"); }
  bool has_column_starts() const { return is_packed("k") || is_packed("v"); }
  static void add_starts(std::vector<plan::KernelArgument>& arguments, bool has, const char* name) {
    if (has) arguments.emplace_back(plan::TensorOperand{name});
  }

  std::vector<plan::KernelArgument> inputs() const {
    std::vector<plan::KernelArgument> all;
    for (const plan::OperandSource& source : expressions_.inputs.operands) {
      if (const auto* param = std::get_if<plan::ParamOperand>(&source))
        all.emplace_back(*param);
      else
        all.emplace_back(std::get<plan::TensorOperand>(source));
    }
    return all;
  }
  void add_inputs(std::vector<plan::KernelArgument>& arguments) const {
    std::ranges::copy(inputs(), std::back_inserter(arguments));
  }

  plan::TensorMapArgument map_of(const std::string& name) const {
    const bool of_keys = name == "k" || name == "v";
    return map_of_keys(attention_, name, {}, of_keys ? tile_.keys : tile_.rows);
  }

  bool is_packed(const std::string& name) const {
    return layout_of(whole_, name).kind == ir::LayoutKind::thd;
  }
  // Of the tensors that are read by TMA and packed.
  std::vector<plan::TensorMapArgument> packed_maps() const {
    std::vector<plan::TensorMapArgument> maps;
    for (const char* name : kCopied) {
      if (is_packed(name)) maps.push_back(map_of(name));
    }
    return maps;
  }

  std::string source() const {
    return (kWatched ? watch_text({"keys", "values", "queries 0", "queries 1", "gradients 0",
                                   "gradients 1", "slopes 0", "slopes 1", "sums", "draws 0",
                                   "draws 1", "draws 2", "draws 3"})
                     : "") +
           kernels::include_text("backward.cuh") +
           (packed_maps().empty() ? "" : kernels::include_text("sequence_maps.cuh")) +
           (made_lists_ ? kernels::include_text("row_lists.cuh") + lists_in_memory_text()
                        : lists_text(blocks_) + order_text()) +
           constants_text() +
           gradient_expressions_text(derivatives_, expressions_, made_lists_.has_value()) +
           (packed_maps().empty() ? "" : sequence_maps_text(whole_, packed_maps())) +
           kernels_text();
  }

  // What lists of ordered sums have besides.
  std::string order_text() const {
    if (!ordered()) return "";
    std::vector<std::int64_t> before;
    for (const KeyRun& run : blocks_.runs) before.push_back(run.before);
    if (before.empty()) before.push_back(0);
    return fmt::format(
        "static __device__ const int kBefore[] = {{{}}};\n"
        "struct OrderedLists : Lists {{\n"
        "  __device__ int before(int i) const {{ return kBefore[i]; }}\n}};\n",
        fmt::join(before, ", "));
  }

  std::string constants_text() const {
    std::string text = fmt::format("struct Constants {{\n  using Float = {};\n",
                                   kernels::float_class(whole_.dtype));
    const bool by_batch = blocks_.axes.batch, by_head = blocks_.axes.head;
    const std::pair<const char*, std::int64_t> integers[] = {
        {"kBlockRows", tile_.rows},
        {"kKeys", tile_.keys},
        {"kDepth", depth()},
        {"kWidth", width()},
        {"kBatches", dims_[Dim::B]},
        {"kHeads", dims_[Dim::Hq]},
        {"kKeyHeads", dims_[Dim::Hkv]},
        {"kHeadsOfKey", heads_of_item()},
        {"kSplits", splits_},
        {"kHeadsOfClass", statistics_.heads},
        {"kRows", dims_[Dim::Sq]},
        {"kColumns", dims_[Dim::Skv]},
        {"kPaddedRows", padded_rows()},
        {"kRowBlocks", row_blocks_of_head()},
        {"kKeyBlocks", blocks_.tiles},
        {"kItems", items()},
        {"kSection", section()},
        {"kListsOfBatch", !by_batch ? 0
                          : by_head ? dims_[Dim::Hkv]
                                    : 1},
        {"kListsOfHead", by_head ? 1 : 0}};
    for (const auto& [name, value] : integers) {
      text += fmt::format("  static constexpr int {} = {};\n", name, value);
    }
    text += fmt::format(
        "  static constexpr long long kStatisticsClass = {};\n"
        "  static constexpr bool kLengths = {}, kOrdered = {}, kRandom = {}, kHeadsOutside = "
        "{},\n                        kRowsFit = {};\n"
        "  static constexpr bool kDiagonals = {}, kShares = {}, kBatchesFirst = {};\n",
        statistics_.of_class, lengths(), ordered(), attention_.is_random(), heads_outside(),
        rows_fit(), diagonals(), shares(), batches_first());
    const Table table = expressions_.table.value_or(Table());
    text += fmt::format(
        "  using Entry = {};\n"
        "  static constexpr bool kTable = {}, kTableOfBatch = {}, kTableOfHead = {};\n",
        kernels::float_class(entry_type()), expressions_.table.has_value(), table.batches > 1,
        table.heads > 1);
    const std::pair<const char*, const char*> tensors[] = {
        {"Queries", "q"}, {"Keys", "k"}, {"Values", "v"}, {"Outputs", "o"}};
    for (const auto& [type, name] : tensors) {
      const Dims4 dims = logical_dims(attention_, name), strides = stored_strides(attention_, name);
      text += places_text(type, dims, strides, moves_in_vectors(dims, strides), is_packed(name));
    }
    const Dims4 of_rows = {statistics_.batch, statistics_.head, statistics_.row, 0};
    return text + places_text("Statistics", {}, of_rows, false, is_packed("o")) + "};\n";
  }

  // Of the table's elements.
  DType entry_type() const {
    const std::optional<Table>& table = expressions_.table;
    return table ? attention_.find_tensor(table->tensor)->dtype : attention_.dtype;
  }

  // Gradients have the layouts of their tensors.
  static std::string places_text(const char* type, const Dims4& dims, const Dims4& strides,
                                 bool aligned, bool packed) {
    return fmt::format("  using {} = kernels::Places<{}, {}, {}, {}, {}, {}, {}>;\n", type,
                       strides[0], strides[1], strides[2], strides[3], dims[3], aligned, packed);
  }

  std::string kernels_text() const {
    const std::string inputs = parameters_text(expressions_.inputs);
    const std::string object = expressions_object(whole_, expressions_.inputs);
    std::vector<std::string> parameters, fields;
    const auto add = [&](bool there, const char* type, const char* name) {
      if (there) parameters.push_back(fmt::format("{} {}", type, name));
      fields.emplace_back(there ? name : "nullptr");
    };
    std::int64_t packed = 0;
    for (const std::string name : kCopied) {
      const std::string parameter = name == "do" ? "d_o" : name;
      fields.push_back(is_packed(name) ? fmt::format("maps + {}", dims_[Dim::B] * packed++)
                                       : "&" + parameter);
      if (is_packed(name)) continue;
      parameters.push_back("const __grid_constant__ kernels::TensorMap " + parameter);
    }
    if (packed > 0) parameters.emplace_back("const kernels::TensorMap* maps");
    add(has_column_starts(), "const int*", kColumnStarts);
    const char* row_starts = has_row_starts() ? kRowStarts : "nullptr";
    const std::string of_row_starts =
        has_row_starts() ? fmt::format(", const int* {}", kRowStarts) : "";
    add(true, "const float*", "exponents");
    add(true, "const float*", "deltas");
    add(wants("dq"), "float*", "sums");
    add(ordered(), "int*", "turns");
    add(wants("dk"), "unsigned short*", "dk");
    add(wants("dv"), "unsigned short*", "dv");
    add(splits_ > 1, "float*", "key_sums");
    add(count_of(Reach::heads) > 0, "float*", "parts");
    if (words_ > 0) parameters.emplace_back("unsigned long long* words");
    std::vector<std::string> own;
    for (const gradient::TensorGradient* tensor : by_scores()) {
      if (part_of(*tensor).reach != Reach::own) continue;
      own.push_back(gradient::gradient_name(tensor->tensor));
      parameters.push_back("void* " + own.back());
    }
    add(true, "int*", "counter");
    const bool table = expressions_.table.has_value(), sigmoid = attention_.is_sigmoid();
    if (made_lists_)
      parameters.emplace_back("const kernels::Tile* tiles, const kernels::Run* runs");
    if (table) parameters.emplace_back("const __grid_constant__ kernels::TensorMap table");
    fields.emplace_back(table ? "&table" : "nullptr");
    if (!expressions_.parts.empty()) {
      fields.emplace_back(words_ > 0 ? "words" : "nullptr");
      fields.push_back(fmt::format("{{{}}}", fmt::join(own, ", ")));
    }
    std::string text = made_lists_ ? made_lists_->text(inputs, object) : "";
    text += fmt::format(
        "static_assert(kernels::BackwardStages<Constants>::kBytes + 1024 == {}, \"\");\n"
        "extern \"C\" __global__ void {}({}float* exponents,\n"
        "                                        float* deltas{}{}) {{\n  {}\n"
        "  kernels::prepare<Constants>({}, {}, expressions, exponents, deltas);\n}}\n"
        "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(\n    {}{}) {{\n  {}\n"
        "  const kernels::BackwardTensors tensors{{{}}};\n"
        "  kernels::backward<Constants>(tensors, expressions, {}{{{}}});\n}}\n",
        shared_bytes(), kPrepareKernel,
        sigmoid ? ""
                : "const unsigned short* o, const unsigned short* d_o,\n"
                  "                                        const float* lse, ",
        of_row_starts, inputs, object, sigmoid ? "nullptr, nullptr, nullptr" : "o, d_o, lse",
        row_starts, kThreadsOfBackward, kBackwardKernel, fmt::join(parameters, ",\n    "), inputs,
        object, fmt::join(fields, ", "), ordered() ? "OrderedLists" : "Lists",
        made_lists_ ? "tiles, runs" : "");
    if (shares()) text += largest_text();
    for (std::size_t i = 0; i < expressions_.parts.size(); ++i) {
      if (expressions_.parts[i].reach == Reach::diagonal) text += spreading_text(i);
    }
    for (const gradient::TensorGradient* tensor : by_scores()) {
      if (part_of(*tensor).reach != Reach::own || is_zeroed(*tensor)) text += text_of(*tensor);
    }
    if (splits_ > 1) text += merge_text();
    if (!wants("dq")) return text;
    return text + fmt::format(
                      "extern \"C\" __global__ void {}(const float* sums, unsigned short* dq{}{}) "
                      "{{\n  {}\n  kernels::convert<Constants>(sums, {}, expressions, dq);\n}}\n",
                      kConvertKernel, of_row_starts, inputs, object, row_starts);
  }

  // The kernel that adds dk and dv of all parts.
  std::string merge_text() const {
    const auto given = [&](const char* gradient) {
      return wants(gradient) ? fmt::format(", unsigned short* {}", gradient) : std::string();
    };
    return fmt::format(
        "extern \"C\" __global__ void {}(const float* sums{}{}{}{}) {{\n  {}\n"
        "  kernels::merge_keys<Constants>(sums, {}, expressions, {}, {});\n}}\n",
        kMergeKernel, has_column_starts() ? fmt::format(", const int* {}", kColumnStarts) : "",
        given("dk"), given("dv"), parameters_text(expressions_.inputs),
        expressions_object(whole_, expressions_.inputs),
        has_column_starts() ? kColumnStarts : "nullptr", wants("dk") ? "dk" : "nullptr",
        wants("dv") ? "dv" : "nullptr");
  }

  std::string largest_text() const {
    const auto starts = [](bool has, const char* name) {
      return has ? fmt::format(", const int* {}", name) : "";
    };
    return fmt::format(
        "extern \"C\" __global__ void {}(const unsigned short* d_o, const unsigned short* v,\n"
        "                                        unsigned long long* words{}{}{}) {{\n  {}\n"
        "  kernels::find_largest<Constants>(d_o, v, {}, {}, expressions, words);\n}}\n",
        kLargestKernel, starts(has_row_starts(), kRowStarts),
        starts(has_column_starts(), kColumnStarts), parameters_text(expressions_.inputs),
        expressions_object(whole_, expressions_.inputs), has_row_starts() ? kRowStarts : "nullptr",
        has_column_starts() ? kColumnStarts : "nullptr");
  }

  std::string spreading_text(std::size_t part) const {
    const LearnedPart& of = expressions_.parts[part];
    return fmt::format(
        "extern \"C\" __global__ void {}(unsigned long long* words{}) {{\n  {}\n"
        "  const kernels::ExactSums sums{{words + {}, {}}};\n"
        "  kernels::spread_diagonals<Constants, {}>(words, sums, expressions);\n}}\n",
        spreading_kernel(part), parameters_text(expressions_.inputs),
        expressions_object(whole_, expressions_.inputs), of.sums, elements_of(tensor_of(of)), part);
  }

  // The kernel of sum_of or zero_of.
  std::string text_of(const gradient::TensorGradient& tensor) const {
    const DType dtype = whole_.find_tensor(tensor.tensor)->dtype;
    const std::int64_t elements = elements_of(tensor.tensor);
    const LearnedPart& first = part_of(tensor);
    const auto element = [&](const char* value) { return kernels::element_text(dtype, value); };
    const std::string gradient = fmt::format("{}* gradient", kernels::element_type(dtype));
    if (first.reach == Reach::heads) {
      return fmt::format(
          "extern \"C\" __global__ void {}(const float* parts, {}{}) {{\n  {}\n"
          "  double share = 0;\n{}  const double sum = kernels::sum_of_shares(share);\n"
          "  if (threadIdx.x == 0) gradient[blockIdx.x] = {};\n}}\n",
          kernel_of(tensor), gradient, parameters_text(expressions_.inputs),
          expressions_object(whole_, expressions_.inputs), shares_text(tensor), element("sum"));
    }
    const bool own = first.reach == Reach::own;
    const std::string sum =
        first.reach == Reach::shared
            ? fmt::format(
                  "    const auto largest = reinterpret_cast<kernels::Largest*>(words);\n"
                  "    const double sum = kernels::FixedSums{{largest, words + {}}}.sum(i, {});\n",
                  first.place, first.bits)
            : fmt::format("    const double sum = kernels::ExactSums{{words + {}, {}}}.sum(i);\n",
                          first.sums, elements);
    return fmt::format(
        "extern \"C\" __global__ void {}({}{}) {{\n  const long long i = attn_thread();\n"
        "  if (i < {}) {{\n{}    gradient[i] = {};\n  }}\n}}\n",
        kernel_of(tensor), own ? "" : "unsigned long long* words, ", gradient, elements,
        own ? "" : sum, own ? "0" : element("sum"));
  }
  std::string shares_text(const gradient::TensorGradient& tensor) const {
    std::string shares;
    for (std::size_t i = 0; i < expressions_.parts.size(); ++i) {
      const LearnedPart& part = expressions_.parts[i];
      if (tensor_of(part) != tensor.tensor) continue;
      shares += fmt::format(
          "  share += kernels::share_of_parts<Constants>(parts + {}ll, [&](int b, int h) {{\n"
          "    return expressions.element<{}>(b, h, 0, 0);\n  }});\n",
          part.place, i);
    }
    return shares;
  }

  const ir::Attention& whole_;  // whose tensors are bound
  const gradient::Derivatives derivatives_;
  const ir::Attention& attention_;  // that the kernels compute
  const ir::Dims& dims_;
  const StatisticsPlaces statistics_;
  const passes::Axes mask_axes_;
  const RowTile tile_;
  const planning::Gpu& gpu_;
  const std::vector<std::string> gradients_;
  KeyBlocks blocks_;  // an upper bound, if the GPU makes lists
  std::optional<RowLists> made_lists_;
  GradientExpressions expressions_;
  std::int64_t words_ = 0;  // of learned tensors
  std::int64_t blocks_of_threads_ = 1;
  std::int64_t splits_ = 1;
};

Status check_learned(const ir::Attention& attention) {
  const gradient::Derivatives derivatives = gradient::differentiate(attention);
  for (const gradient::TensorGradient& learned : derivatives.tensors) {
    if (learned.score.empty() || learned.sink.empty()) continue;
    return unsupported(
        attention.find_tensor(learned.tensor)->pos,
        fmt::format("attnc's backward kernels do not compute the gradient of `{}`: the score and "
                    "the sink both read it",
                    learned.tensor),
        "list other gradients alone, as in `grad q, k, v`, or compute it by `--engine cudnn`");
  }
  return {};
}

}  // namespace

Status check_backward(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_gradients(attention));
  ATTN_RETURN_IF_ERROR(check_clauses(attention));
  const ir::Dims& d = attention.dims;
  if (static_cast<double>(d[Dim::B] * d[Dim::Hq]) * static_cast<double>(d[Dim::Sq] + kCell + 64) >
      0x1p31) {
    return unsupported(attention.pos, "attnc's backward kernels number up to 2^31 rows of heads");
  }
  ATTN_RETURN_IF_ERROR(check_learned(attention));
  for (const Dim dim : {Dim::Dqk, Dim::Dv}) {
    ATTN_RETURN_IF_ERROR(check_depth(attention, dim, kMostColumns));
  }
  for (const char* name : {"q", "k", "v", "do"}) {
    ATTN_RETURN_IF_ERROR(check_layout(attention, name));
  }
  return {};
}

Result<NativeProgram> lower_backward(const ir::Attention& attention, const passes::Axes& mask_axes,
                                     const planning::Context& context, std::size_t refused) {
  const Form whole = whole_form(with_reduced_strength(attention));
  const std::vector<LearnedPart> learned = learned_parts(gradient::differentiate(whole.attention));
  const bool diagonals = std::ranges::count(learned, Reach::diagonal, &LearnedPart::reach) > 0;
  const std::vector<RowTile> tiles = tiles_of(attention, diagonals);
  if (refused >= tiles.size()) {
    return unsupported(attention.pos, "no tile of attnc's backward kernel fits this score");
  }
  NativeBackward of_whole(attention, whole, mask_axes, tiles[refused], context.gpu);
  const Result<double> work = of_whole.work();
  const bool learns = !gradient::differentiate(attention).tensors.empty();
  const auto part = learns ? std::nullopt : classes_of(whole.attention, context);
  const auto classes = readable_classes(whole.attention, part, {"q", "k", "v", "do"});
  if (classes) {
    const passes::Axes axes = passes::analyzed(classes->attention, context)->axes();
    NativeBackward of_classes(attention, *classes, passes::varying(axes, classes->attention.dims),
                              tiles[refused], context.gpu);
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

}  // namespace attn::lowering::native
