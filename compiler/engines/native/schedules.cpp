#include "compiler/engines/native/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/masks/axes.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/schedule_options.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr const char* kOptions = "native.options";
constexpr std::int64_t kOptionWords = sizeof(plan::ScheduleOptions) / 4;
constexpr std::int64_t kScheduleThreads = 512;
constexpr std::int64_t kHeader = 8, kWordsOfSpan = 2, kNotesOfTile = 4, kWordsBeforePart = 16;
constexpr std::int64_t kMostBatches = 4096;                 // a number of each is in shared memory
constexpr std::int64_t kMostTiles = std::int64_t{1} << 16;  // of a batch, in bits of an item
constexpr std::int64_t kMostWords = std::int64_t{1} << 28;

// Measured on an H200: of tiles of one warp group, which are for few rows; of others; and of those
// whose o two warp groups divide.
constexpr ScheduleFigures kOfFew = {
    .between = 2, .least_span = 4, .long_share = 120, .turns = 6, .least_part = 36};
constexpr ScheduleFigures kOfMany = {.between = 3, .least_span = 8, .long_share = 160, .turns = 3};
constexpr ScheduleFigures kOfWide = {
    .between = 10, .least_span = 10, .long_share = 160, .turns = 3};
constexpr std::int64_t kElementsMerged = 4400;  // of a part, in about the time of a block

std::int64_t rounded_to_four(std::int64_t words) { return 4 * ceil_div(words, std::int64_t{4}); }

}  // namespace

std::int64_t ScheduleSizes::elements_of_slot(const Tile& tile) {
  return kWordsBeforePart + tile.warps() * (4 * 32 + 16 * tile.share());
}

std::int64_t ScheduleSizes::words() const {
  const std::int64_t noted = rounded_to_four(batches * tiles + 1);
  const std::int64_t items = batches * tiles * units + workers;
  return rounded_to_four(kHeader + kWordsOfSpan * workers) + kNotesOfTile * noted +
         kWordsOfSlot * (items + slots);
}

bool ScheduleSizes::fit() const {
  return batches <= kMostBatches && tiles < kMostTiles && slots < kMostTiles &&
         words() <= kMostWords;
}

ScheduleFigures schedule_figures(const Tile& tile) {
  ScheduleFigures figures = tile.shares > 1 ? kOfWide : tile.groups > 1 ? kOfMany : kOfFew;
  figures.merging = ceil_div(ScheduleSizes::elements_of_slot(tile), kElementsMerged);
  return figures;
}

// A tile that is divided in turns is longer than two parts, and so has less than one and a half
// times as many parts as fit. Of the line, each span has two parts at most.
ScheduleSizes schedule_sizes(const ir::Dims& dims, const Kernel& kernel) {
  const std::int64_t parts = schedule_figures(kernel.tile).turns * kernel.workers * 8 / 5;
  return {kernel.workers, dims[Dim::B], kernel.blocks.tiles, kernel.units(dims),
          std::max(parts, 2 * kernel.workers) + 1};
}

std::string why_not_shared(const ir::Attention& attention, const Kernel& kernel) {
  const auto is = [&](const char* name, ir::LayoutKind kind) {
    return layout_of(attention, name).kind == kind;
  };
  const auto gathers = [&](const char* name) {
    return kernel.gathers(read_page_of(attention, kernel.tile, name));
  };
  if (!is("q", ir::LayoutKind::thd) || !is("o", ir::LayoutKind::thd))
    return "rows of q and o are not packed (layout thd)";
  if (!is("k", ir::LayoutKind::paged) || !is("v", ir::LayoutKind::paged))
    return "keys and values are not in pages";
  if (attention.cache) return "keys and values are of 8 bits";
  if (has_formatted_rows(attention, "k")) return "rows of keys have several types";
  if (gathers("k") || gathers("v")) return "pages are no multiples of 16 rows";
  if (attention.is_pointwise() || attention.quotient) return "weights are not those of softmax";
  if (attention.quantize) return "q, k and v are 8-bit floats";
  if (attention.dropout) return "there is dropout";
  masks::Dependence dependence(attention.dag);
  const masks::Axes axes = dependence[attention.score];
  if (axes.row || axes.batch || kernel.tile.tables > 0)
    return "scores depend on the row or on the sequence";
  return "";
}

std::string schedule_kernel_text(const std::string& parameters, const std::string& object,
                                 bool shares_keys) {
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(\n"
      "    int* schedule, float* parts, const int* options{}) {{\n  {}\n"
      "  kernels::make_schedule<Constants>(expressions, schedule, parts, options{});\n}}\n",
      kScheduleThreads, kScheduleKernel, parameters, object,
      shares_keys ? fmt::format(", t_{}.starts", ir::kLengthsQ) : "");
}

void add_schedule(const ScheduleSizes& sizes, const Kernel& kernel,
                  const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
                  plan::KernelStep& step) {
  const Tile& tile = kernel.tile;
  const std::int64_t elements = sizes.slots * ScheduleSizes::elements_of_slot(tile);
  program.internals.push_back(plan::internal_tensor(kSchedule, DType::i32, {sizes.words()}));
  program.internals.push_back(plan::internal_tensor(kParts, DType::f32, {elements}));
  program.internals.push_back(plan::internal_tensor(kOptions, DType::i32, {kOptionWords}));
  codegen::KernelText zeros;
  zeros.make(kOptions, DType::i32, kOptionWords, "0", "out[i] = 0;");
  program.steps.emplace_back(std::move(zeros).finish(true));
  step.outputs.insert(step.outputs.end(), {kSchedule, kParts});
  std::vector<plan::KernelArgument> arguments = {
      plan::TensorOperand{kSchedule}, plan::TensorOperand{kParts}, plan::TensorOperand{kOptions}};
  std::ranges::copy(inputs, std::back_inserter(arguments));
  step.schedule = plan::Schedule{.tensor = kSchedule,
                                 .options = kOptions,
                                 .parts = kParts,
                                 .slots = sizes.slots,
                                 .slot_words = ScheduleSizes::kWordsOfSlot,
                                 .slot_elements = ScheduleSizes::elements_of_slot(tile),
                                 .sequences = sizes.batches,
                                 .units = sizes.units,
                                 .tile_rows = tile.rows_of_head(),
                                 .tile_keys = tile.keys,
                                 .shares_keys = kernel.unshared.empty(),
                                 .unshared = kernel.unshared};
  step.launches.push_back({.kernel = kScheduleKernel,
                           .block = {kScheduleThreads, 1, 1},
                           .arguments = std::move(arguments)});
}

}  // namespace attn::engines::native
