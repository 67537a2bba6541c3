#include "compiler/masks/mask_analysis.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <utility>

#include "compiler/masks/happens.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

// Whether an analysis reads the same of two tensors.
bool is_same(const ir::Attention& a, const ir::Attention& b, const std::string& name) {
  const ir::CapturedTensor &x = *a.find_tensor(name), &y = *b.find_tensor(name);
  const auto size_in = [](const ir::Attention& attention) {
    return [&attention](ExprId id) { return ir::fold_integer(attention.dag, id, attention.dims); };
  };
  return x.dtype == y.dtype && x.monotone == y.monotone &&
         std::ranges::equal(x.extents, y.extents, {}, size_in(a), size_in(b));
}

// Whether all is the same that an analysis depends on, ids and positions too.
bool has_same_masks(const ir::Attention& a, const ir::Attention& b) {
  if (a.align != b.align || a.lengths_q != b.lengths_q || a.lengths_kv != b.lengths_kv ||
      a.dims != b.dims || a.masks != b.masks)
    return false;
  return std::ranges::all_of(ir::reachable(a.dag, a.masks), [&](ExprId id) {
    const ir::Node &x = a.dag[id], &y = b.dag[id];
    return x == y && x.pos.line == y.pos.line && x.pos.column == y.pos.column &&
           (!x.is(Op::load_) || is_same(a, b, a.dag.symbol_of(id)));
  });
}

constexpr std::string_view kPhase = "analysing masks";

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 24;

std::optional<BlockMap> blocks_of(const ir::Attention& attention,
                                  const target::Deadline* deadline) {
  const auto blocks = [&](ir::Dim dim) { return *attention.dims.get(dim) / kBlock + 1; };
  if (attention.masks.empty() || !attention.dims.bound()) return std::nullopt;
  if (blocks(ir::Dim::Sq) > kMostBlocks / blocks(ir::Dim::Skv)) return std::nullopt;
  return block_map(attention, kBlock, kBlock, Effort::kMost, deadline);
}

bool is_empty(const Band& band) { return band.left && band.right && *band.right < -*band.left; }

}  // namespace

// Callers keep references to values, so one that is found again does not replace the first.
template <typename Value>
struct FoundOnce {
  std::list<Value> values;
  bool is_late = false;  // the last: it was found when the deadline was over
};

template <typename Value>
struct Searched {
  Value value;
  std::int64_t effort = 0;  // that it took
};

struct MaskFacts {
  ir::Attention attention;
  const target::AnalysisObserver* observer = nullptr;
  FoundOnce<MaskForm> form{};
  std::optional<Searched<Band>> cover{};
  std::optional<Searched<std::optional<Bounds>>> bounds{};
  std::optional<Searched<bool>> hides_all{};
  FoundOnce<std::optional<BlockMap>> blocks{};
  std::map<std::type_index, FoundOnce<std::shared_ptr<const void>>> kept{};
};

MaskAnalysis::MaskAnalysis(ir::Attention attention, const target::AnalysisObserver* observer)
    : MaskAnalysis(std::make_shared<MaskFacts>(MaskFacts{std::move(attention), observer}),
                   nullptr) {}

MaskAnalysis::MaskAnalysis(std::shared_ptr<MaskFacts> facts,
                           std::shared_ptr<target::Deadline> deadline)
    : facts_(std::move(facts)), attention_(facts_->attention), deadline_(std::move(deadline)) {}

void MaskAnalysis::report(std::string_view part) const {
  if (facts_->observer != nullptr) (*facts_->observer)({part, attention_});
}

bool MaskAnalysis::is_over() const { return deadline_ != nullptr && deadline_->is_over(); }

template <typename Kept, typename Compute>
const auto& MaskAnalysis::once(std::string_view part, Kept& kept, const Compute& compute) const {
  if (!kept.values.empty() && (!kept.is_late || is_over())) return kept.values.back();
  const target::Deadline::Phase phase(deadline_.get(), kPhase);
  kept.values.push_back(compute());
  kept.is_late = is_over();
  report(part);
  return kept.values.back();
}

template <typename Kept, typename Compute>
auto MaskAnalysis::within(std::string_view part, Kept& kept, Effort& effort,
                          const Compute& compute) const {
  if (kept && effort.left() >= kept->effort) {
    effort.spend(kept->effort);
    return kept->value;
  }
  const target::Deadline::Phase phase(deadline_.get(), kPhase);
  const std::int64_t before = effort.left();
  auto value = compute();
  report(part);
  if (!effort.is_spent() && !is_over()) kept = {value, before - effort.left()};
  return value;
}

const MaskForm& MaskAnalysis::form() const {
  static const MaskForm kWithoutMasks;
  if (attention_.masks.empty()) return kWithoutMasks;
  return once("form", facts_->form, [this] { return find_form(); });
}

Axes MaskAnalysis::axes() const {
  Dependence dependence(attention_.dag);
  Axes axes;
  for (const ExprId mask : attention_.masks) {
    axes = axes | varying(dependence[mask], attention_.dims);
  }
  return axes;
}

Band MaskAnalysis::cover(Effort& effort) const {
  return within("cover", facts_->cover, effort, [&] { return cover_of(attention_, effort); });
}

std::optional<Bounds> MaskAnalysis::bounds(Effort& effort) const {
  return within("bounds", facts_->bounds, effort, [&] { return bounds_of(attention_, effort); });
}

bool MaskAnalysis::hides_all(Effort& effort) const {
  return within("hides_all", facts_->hides_all, effort, [&] {
    return is_empty(form().band) || is_empty(form().from_end) ||
           masks::hides_all(attention_, effort);
  });
}

const std::optional<BlockMap>& MaskAnalysis::blocks() const {
  return once("blocks", facts_->blocks, [this] { return blocks_of(attention_, deadline_.get()); });
}

const void* MaskAnalysis::kept(std::string_view part, std::type_index type,
                               const std::function<std::shared_ptr<const void>()>& make) const {
  return once(part, facts_->kept[type], make).get();
}

Analyzed MaskAnalyses::of(const ir::Attention& attention,
                          std::shared_ptr<target::Deadline> deadline) {
  const auto is_of = [&](const auto& facts) { return has_same_masks(attention, facts->attention); };
  auto kept = std::ranges::find_if(kept_, is_of);
  if (kept == kept_.end()) {
    kept_.push_back(std::make_shared<MaskFacts>(MaskFacts{attention, observer_}));
    kept = std::prev(kept_.end());
  }
  return std::make_shared<const MaskAnalysis>(*kept, std::move(deadline));
}

Analyzed analyzed(const ir::Attention& attention, const target::Context& context) {
  if (context.analyses != nullptr) return context.analyses->of(attention, context.deadline);
  return std::make_shared<const MaskAnalysis>(
      std::make_shared<MaskFacts>(MaskFacts{attention, nullptr}), context.deadline);
}

}  // namespace attn::masks
