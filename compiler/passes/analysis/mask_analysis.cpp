#include "compiler/passes/analysis/mask_analysis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/passes/analysis/happens.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;

std::string text_of(const ir::Attribute& attribute) {
  if (const auto* value = std::get_if<bool>(&attribute)) return *value ? "true" : "false";
  if (const auto* value = std::get_if<std::int64_t>(&attribute)) return fmt::format("{}", *value);
  if (const auto* value = std::get_if<double>(&attribute)) return fmt::format("{}", *value);
  if (const auto* value = std::get_if<std::string>(&attribute)) return *value;
  return {};
}

// What an analysis reads of a tensor.
std::string text_of(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  const auto size = [&](ExprId id) {
    return ir::fold_integer(attention.dag, id, attention.dims).value_or(-1);
  };
  std::string text =
      fmt::format(" {} {} {}", tensor.name, to_string(tensor.dtype), tensor.monotone);
  for (const ExprId extent : tensor.extents) text += fmt::format(" {}", size(extent));
  return text;
}

// All that the analysis depends on, with ids and positions.
std::string key_of(const ir::Attention& attention) {
  std::string key =
      fmt::format("{} {} {} masks {}", to_string(attention.align), attention.lengths_q,
                  attention.lengths_kv, fmt::join(attention.masks, " "));
  for (const ir::Dim dim : ir::kDims) {
    key += fmt::format(" {}", attention.dims.get(dim).value_or(-1));
  }
  for (const ExprId id : ir::reachable(attention.dag, attention.masks)) {
    const ir::Node& node = attention.dag[id];
    key +=
        fmt::format("\n{} {} {} {} at {}:{}", id, ir::info(node.op).name, text_of(node.attribute),
                    fmt::join(node.operands, " "), node.pos.line, node.pos.column);
    if (!node.is(Op::load_)) continue;
    key += text_of(attention, *attention.find_tensor(attention.dag.symbol_of(id)));
  }
  return key;
}

constexpr std::string_view kPhase = "analysing masks";

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 24;

std::optional<BlockMap> blocks_of(const ir::Attention& attention) {
  const auto blocks = [&](ir::Dim dim) { return *attention.dims.get(dim) / kBlock + 1; };
  if (attention.masks.empty() || !attention.dims.bound()) return std::nullopt;
  if (blocks(ir::Dim::Sq) > kMostBlocks / blocks(ir::Dim::Skv)) return std::nullopt;
  return block_map(attention);
}

bool is_empty(const Band& band) { return band.left && band.right && *band.right < -*band.left; }

}  // namespace

void MaskAnalysis::report(std::string_view part) const {
  if (observer_ != nullptr) (*observer_)({part, attention_});
}

template <typename Value, typename Compute>
const Value& MaskAnalysis::once(std::string_view part, std::optional<Value>& kept,
                                const Compute& compute) const {
  if (kept) return *kept;
  const planning::Deadline::Phase phase(deadline_.get(), kPhase);
  kept.emplace(compute());
  report(part);
  return *kept;
}

template <typename Value, typename Compute>
Value MaskAnalysis::within(std::string_view part, std::optional<Searched<Value>>& kept,
                           Effort& effort, const Compute& compute) const {
  if (kept && effort.left() >= kept->effort) {
    effort.spend(kept->effort);
    return kept->value;
  }
  const planning::Deadline::Phase phase(deadline_.get(), kPhase);
  const std::int64_t before = effort.left();
  Value value = compute();
  report(part);
  if (!effort.is_spent()) kept = Searched<Value>{value, before - effort.left()};
  return value;
}

const MaskForm& MaskAnalysis::form() const {
  static const MaskForm kWithoutMasks;
  if (attention_.masks.empty()) return kWithoutMasks;
  return once("form", form_, [this] { return find_form(); });
}

Axes MaskAnalysis::axes() const {
  Dependence dependence(attention_.dag);
  Axes axes;
  for (const ExprId mask : attention_.masks) {
    axes = axes | varying(dependence[mask], attention_.dims);
  }
  return axes;
}

const VisibleColumns& MaskAnalysis::columns() const {
  return once("columns", columns_, [this] { return visible_columns(attention_); });
}

Band MaskAnalysis::cover(Effort& effort) const {
  return within("cover", cover_, effort, [&] { return cover_of(attention_, effort); });
}

std::optional<Bounds> MaskAnalysis::bounds(Effort& effort) const {
  return within("bounds", bounds_, effort, [&] { return bounds_of(attention_, effort); });
}

bool MaskAnalysis::hides_all(Effort& effort) const {
  return within("hides_all", hides_all_, effort, [&] {
    return is_empty(form().band) || is_empty(form().from_end) ||
           passes::hides_all(attention_, effort);
  });
}

const std::optional<BlockMap>& MaskAnalysis::blocks() const {
  return once("blocks", blocks_, [this] { return blocks_of(attention_); });
}

const std::optional<BlockLists>& MaskAnalysis::block_lists() const {
  return once("block_lists", block_lists_, [this] { return find_block_lists(); });
}

Analyzed MaskAnalyses::of(const ir::Attention& attention) {
  Analyzed& kept = kept_[key_of(attention)];
  if (!kept) kept = std::make_shared<const MaskAnalysis>(attention, observer_);
  return kept;
}

Analyzed analyzed(const ir::Attention& attention, const planning::Context& context) {
  Analyzed analysis = context.analyses != nullptr
                          ? context.analyses->of(attention)
                          : std::make_shared<const MaskAnalysis>(attention, nullptr);
  analysis->set_deadline(context.deadline);
  return analysis;
}

}  // namespace attn::passes
