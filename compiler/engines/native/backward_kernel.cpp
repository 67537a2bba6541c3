#include "compiler/engines/native/backward_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/masks/axes.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// The rows of q and do of a section's heads of keys are to stay in the L2 cache, at most so many
// bytes and heads, but for a section that would take less time than its longest item.
constexpr std::int64_t kBytesOfGroup = std::int64_t{32} << 20, kHeadsOfGroup = 4;
constexpr double kUneven = 1.5, kVeryUneven = 3;  // the longest list: times the mean
constexpr double kShort = 24;                     // blocks of rows, on average
constexpr std::int64_t kMostMergers = 1024;       // about those that run at the same time
constexpr std::int64_t kWordsOfPart = 4;
// Constants of attn/backward_convert.cuh, backward_tensors.cuh and learned_sums.cuh.
constexpr std::int64_t kMergersOfPart = 8, kPartsOfBlock = 8, kWordsOfLargest = 4,
                       kWordsOfElement = 9;

}  // namespace

BackwardKernel::BackwardKernel(const ir::Attention& of_whole, const Form& form,
                               const RowTile& of_tile)
    : whole(of_whole),
      derivatives(gradient::differentiate(form.attention)),
      attention(derivatives.attention),
      dims(attention.dims),
      rows(attention.quantize ? std::optional(with_wide_rows(attention)) : std::nullopt),
      statistics(form.statistics),
      tile(of_tile),
      gradients(gradient_names(of_whole)) {}

std::int64_t BackwardKernel::parts() const {
  return made_lists ? made_division.most_parts : static_cast<std::int64_t>(division.parts.size());
}

std::int64_t BackwardKernel::items() const {
  return division.all ? 0 : key_blocks() - static_cast<std::int64_t>(division.in_order.size());
}

std::int64_t BackwardKernel::mergers() const {
  return std::min(kMergersOfPart * parts(), kMostMergers);
}

std::int64_t BackwardKernel::counters() const {
  const bool made = made_lists && divides();
  return first_word_of_division() + (made ? kWordsOfPart * (1 + parts()) : 0);
}

std::int64_t BackwardKernel::first_word_of_division() const {
  const std::int64_t first = 1 + (made_lists ? made_lists->sizes().lists : 0);
  return made_lists && divides() ? ceil_div(first, kWordsOfPart) * kWordsOfPart : first;
}

std::size_t BackwardKernel::most_outputs() const {
  constexpr std::size_t kOf8Bits = std::size(kAmaxOfGradients) + 1;  // and kRowsTensor
  return plan::kMostOutputs + (rows ? kOf8Bits : 0);
}

bool BackwardKernel::wants(const char* gradient) const {
  return std::ranges::find(gradients, gradient) != gradients.end();
}

std::vector<const gradient::TensorGradient*> BackwardKernel::by_scores() const {
  std::vector<const gradient::TensorGradient*> found;
  for (const gradient::TensorGradient& tensor : derivatives.tensors) {
    if (!tensor.score.empty()) found.push_back(&tensor);
  }
  return found;
}

std::int64_t BackwardKernel::elements_of(const std::string& tensor) const {
  return native::elements_of(whole, tensor);
}

const std::string& BackwardKernel::tensor_of(const LearnedPart& part) const {
  return derivatives.attention.dag.symbol_of(part.gather.load);
}

const LearnedPart& BackwardKernel::part_of(const gradient::TensorGradient& tensor) const {
  return *std::ranges::find(expressions.parts, tensor.tensor,
                            [this](const LearnedPart& part) { return tensor_of(part); });
}

std::int64_t BackwardKernel::count_of(Reach reach) const {
  std::int64_t count = 0;
  for (const LearnedPart& part : expressions.parts) count += part.reach == reach ? part.turns() : 0;
  return count;
}

bool BackwardKernel::shares() const {
  return std::ranges::any_of(expressions.parts, [](const LearnedPart& part) {
    return part.bits > 0 && (part.reach == Reach::shared || part.reach == Reach::diagonal);
  });
}

void BackwardKernel::place_parts() {
  std::int64_t of_heads = 0, own = 0, sums = 0;
  std::string last;
  for (LearnedPart& part : expressions.parts) {
    part.elements = elements_of(tensor_of(part));
    if (tile.is_short) part.bits = 0;  // no kernel before tells a unit of integers
    if (part.reach == Reach::heads) {
      part.place = of_heads, of_heads += part.turns() * parts_of_learned();
    } else if (part.reach == Reach::own) {
      part.place = own++;
    } else if (part.reach == Reach::shared && part.bits > 0) {
      part.place = add_words(part.elements);
    } else {
      if (last != tensor_of(part)) sums = add_words(kWordsOfElement * part.elements);
      last = tensor_of(part);
      part.place = part.sums = sums;
    }
    if (part.reach != Reach::diagonal) continue;
    part.elements = heads() * (dims[Dim::Sq] + dims[Dim::Skv] - 1);
    part.place = add_words(part.bits > 0 ? part.elements : kWordsOfElement * part.elements);
  }
}

// Returns where they begin.
std::int64_t BackwardKernel::add_words(std::int64_t more) {
  words = std::max(words, kWordsOfLargest) + more;
  return words - more;
}

std::int64_t BackwardKernel::parts_of_learned() const {
  return heads() * blocks.tiles * kPartsOfBlock;
}

std::vector<std::string> BackwardKernel::own_gradients() const {
  std::vector<std::string> own;
  for (const char* gradient : {"dq", "dk", "dv"}) {
    if (wants(gradient)) own.emplace_back(gradient);
  }
  for (const gradient::TensorGradient* tensor : by_scores()) {
    own.push_back(gradient::gradient_name(tensor->tensor));
  }
  return own;
}

bool BackwardKernel::rows_fit() const {
  if (depends_on_inputs() || lengths()) return false;
  if (tile.is_short) return dims[Dim::Sq] % tile.rows == 0;
  const bool fit = std::ranges::all_of(blocks.runs, [this](const KeyRun& run) {
    return run.key + run.blocks * tile.rows <= dims[Dim::Sq];
  });
  return fit && std::ranges::all_of(blocks.lists, [this](const TileList& list) {
           return list.blocks >= (heads_of_key() == 1 ? 2 : 1);
         });
}

std::optional<std::size_t> BackwardKernel::summed_part() const {
  if (!tile.is_short || dims[Dim::Sq] > tile.rows || heads_of_key() > 1) return std::nullopt;
  masks::Dependence dependence(attention.dag);
  const auto is_summed = [&](const LearnedPart& part) {
    if (part.reach == Reach::heads || part.reach == Reach::own || part.turns() > 1) return false;
    const auto& indices = attention.dag[part.gather.load].operands;
    return std::ranges::none_of(indices, [&](ir::ExprId i) { return dependence[i].batch; });
  };
  const auto found = std::ranges::find_if(expressions.parts, is_summed);
  if (found == expressions.parts.end()) return std::nullopt;
  return static_cast<std::size_t>(found - expressions.parts.begin());
}

double BackwardKernel::steps() const { return static_cast<double>(heads() * row_blocks_of_head()); }

double BackwardKernel::bytes_of_tensors() const {
  const auto of_rows = static_cast<double>(heads() * dims[Dim::Sq]);
  const auto of_keys = static_cast<double>(dims[Dim::B] * dims[Dim::Hkv] * dims[Dim::Skv]);
  const auto depth = static_cast<double>(dims[Dim::Dqk]),
             width = static_cast<double>(dims[Dim::Dv]);
  const auto size = static_cast<double>(size_of(attention.dtype));
  return size * (of_rows * 2 * (depth + width) + 2 * of_keys * (depth + width)) + 4 * of_rows;
}

// Lists that are much longer than others begin first, so that none of them runs alone in the end.
std::int64_t BackwardKernel::section() const {
  if (batches_first()) return dims[Dim::B];
  if (!division.in_order.empty()) return kUnitsOfOrder;
  if (!blocks.sorted && !depends_on_inputs()) return 1;
  const bool uneven = !depends_on_inputs() && longest_whole() > kVeryUneven * mean();
  if (uneven) return dims[Dim::B] * dims[Dim::Hkv];
  const std::int64_t bytes = heads_of_key() * dims[Dim::Sq] * (dims[Dim::Dqk] + dims[Dim::Dv]) *
                             static_cast<std::int64_t>(size_of(product_type()));
  std::int64_t units =
      std::clamp<std::int64_t>(kBytesOfGroup / std::max<std::int64_t>(1, bytes), 1, kHeadsOfGroup);
  const double least = longest_whole() * static_cast<double>(blocks_of_threads);
  const double of_unit = mean() * static_cast<double>(blocks.tiles);
  while (units < kHeadsOfGroup && static_cast<double>(units) * of_unit < least) units *= 2;
  return units;
}

bool BackwardKernel::batches_first() const {
  if (tile.is_short) return expressions.table || summed_part();
  return !ordered() && std::ranges::any_of(expressions.parts, [this](const LearnedPart& part) {
    const auto& indices = attention.dag[part.gather.load].operands;
    const auto is_read = [&](ir::Op op) {
      return std::ranges::any_of(indices, [&](ir::ExprId i) { return attention.dag[i].is(op); });
    };
    return part.reach == Reach::shared && is_read(ir::Op::head_) && !is_read(ir::Op::batch_);
  });
}

bool BackwardKernel::heads_outside() const {
  if (ordered() || depends_on_inputs() || heads_of_key() == 1) return false;
  return mean() < kShort || longest() > kUneven * mean();
}

double BackwardKernel::walked_blocks() const {
  std::int64_t listed = 0, walked = 0;
  for (const TileList& list : blocks.lists) {
    listed += list.blocks, walked += std::max(list.blocks, least_blocks());
  }
  if (listed == 0) return blocks.blocks;
  return blocks.blocks * static_cast<double>(walked) / static_cast<double>(listed);
}

double BackwardKernel::longest() const {
  std::int64_t most = 0;
  for (const TileList& list : blocks.lists) most = std::max(most, list.blocks);
  return static_cast<double>(most);
}

double BackwardKernel::longest_whole() const {
  std::int64_t most = 0;
  for (const TileList& list : blocks.lists) {
    if (division.parts.empty() || list.blocks <= division.most) most = std::max(most, list.blocks);
  }
  return static_cast<double>(most);
}

std::int64_t BackwardKernel::row_blocks_of_head() const {
  return ceil_div(dims[Dim::Sq], tile.rows);
}

std::int64_t BackwardKernel::shared_bytes() const {
  return native::shared_bytes(attention, tile, expressions.table.has_value(), diagonals());
}

bool BackwardKernel::is_zeroed(const gradient::TensorGradient& tensor) const {
  const std::int64_t scores = heads() * dims[Dim::Sq] * dims[Dim::Skv];
  return part_of(tensor).reach == Reach::own &&
         (!attention.masks.empty() || lengths() || elements_of(tensor.tensor) != scores);
}

std::string BackwardKernel::kernel_of(const gradient::TensorGradient& tensor) {
  return kGradientKernel + tensor.tensor;
}

plan::TensorMapArgument BackwardKernel::map_of(const std::string& name) const {
  const bool of_keys = name == "k" || name == "v";
  const std::int64_t of_box = of_keys ? tile.keys : tile.rows;
  if (!rows) return map_of_keys(attention, name, {}, of_box);
  plan::TensorMapArgument map = map_of_keys(*rows, name, {}, of_box);
  map.tensor = wide_rows(attention, name);
  return map;
}

bool BackwardKernel::is_packed(const std::string& name) const {
  return layout_of(whole, name).kind == ir::LayoutKind::thd;
}

std::vector<std::string> BackwardKernel::operands_of_rows() const {
  std::vector<std::string> names;
  if (!attention.is_pointwise()) names = {"o", "lse"};
  if (whole.reads_d_lse) names.emplace_back(kLseCotangent);
  if (wants("dq")) names.emplace_back("dq");
  return names;
}

std::string BackwardKernel::spreading_kernel(std::size_t part) {
  return fmt::format("{}{}", kDiagonalsKernel, part);
}

}  // namespace attn::engines::native
