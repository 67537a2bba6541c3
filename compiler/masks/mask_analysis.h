// What the masks of an attention show, as cost, rewrites, strategies, lowering, static checks and
// `explain` share it. Other facts about masks are found beside it: padding.h, happens.h.
//
// It is found in two ways, one for each kind of question:
//   - bands (band.h): comparisons of row and column, split off exactly. What cuDNN skips by.
//   - boxes of scores (range.h), halved until ranges decide: the band or the rows and columns that
//     hold all visible scores, and which blocks are empty, full or partial. Numbers, for bound
//     dimensions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <typeindex>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/band.h"
#include "compiler/masks/blocks.h"
#include "compiler/masks/boxes.h"
#include "compiler/target/context.h"

namespace attn::masks {

// What analyses of one attention have found.
struct MaskFacts;

// The analysis of the masks of one attention, of which it keeps a copy. Each part is computed at
// the first call, reported to the observer, and kept; band() and axes(), which are cheap, are
// computed at each call. It depends on the masks, the dimensions, the alignment, lengths, and the
// tensors that masks read; not on the score or the outputs. Not thread-safe.
class MaskAnalysis {
 public:
  // The observer, which may be null, must outlive this.
  MaskAnalysis(ir::Attention attention, const target::AnalysisObserver* observer);
  // Shares what others of the same facts found. What it computes takes time of the deadline, which
  // may be null; what it computed when that was over is kept for those whose deadline is, too.
  MaskAnalysis(std::shared_ptr<MaskFacts> facts, std::shared_ptr<target::Deadline> deadline);
  MaskAnalysis(const MaskAnalysis&) = delete;
  MaskAnalysis& operator=(const MaskAnalysis&) = delete;

  // Bands and residual masks. Exact.
  const MaskForm& form() const;

  // The bands of form() as one around the first diagonal. Exact for full lengths. Dimensions must
  // be bound.
  Band band() const { return full_band(form(), attention_.dims); }

  // The batch, head, row and column, if the masks depend on them. An upper bound.
  Axes axes() const;

  // Three parts spend effort: the same amount at each call, so that what else an effort is enough
  // for does not depend on the calls before. What was cut short, or computed when the deadline was
  // over, is not kept.

  // The narrowest band that holds all visible scores (boxes.h), whatever form() says. An upper
  // bound where tensors, params or reals decide, and if the effort ends.
  Band cover(Effort& effort) const;

  // The rows and columns that hold all visible scores (boxes.h); nullopt if there are none. Like
  // cover().
  std::optional<Bounds> bounds(Effort& effort) const;

  // True if proven that no score is visible, for any size of open dimensions.
  bool hides_all(Effort& effort) const;

  // The blocks of kBlock rows and columns of the first batch and head; tells itself whether they
  // are exact. nullopt without masks, for open dimensions, and for more than kMostBlocks.
  const std::optional<BlockMap>& blocks() const;

  // What else follows from the masks, for a caller that has a type of its own for it: what `find`
  // returns for attention(), within the time of deadline().
  template <typename Value, typename Find>
  const Value& kept(std::string_view part, const Find& find) const {
    const auto make = [&] { return std::make_shared<const Value>(find(*this)); };
    return *static_cast<const Value*>(kept(part, std::type_index(typeid(Value)), make));
  }

  const ir::Attention& attention() const { return attention_; }
  const target::Deadline* deadline() const { return deadline_.get(); }  // may be null

 private:
  MaskForm find_form() const;  // band.cpp
  const void* kept(std::string_view part, std::type_index type,
                   const std::function<std::shared_ptr<const void>()>& make) const;

  template <typename Kept, typename Compute>
  const auto& once(std::string_view part, Kept& kept, const Compute& compute) const;
  template <typename Kept, typename Compute>
  auto within(std::string_view part, Kept& kept, Effort& effort, const Compute& compute) const;
  void report(std::string_view part) const;
  bool is_over() const;  // the deadline

  std::shared_ptr<MaskFacts> facts_;
  const ir::Attention& attention_;  // of the facts
  std::shared_ptr<target::Deadline> deadline_;
};

using Analyzed = std::shared_ptr<const MaskAnalysis>;

// The analyses of one compilation: attentions with the same masks share one. Not thread-safe.
class MaskAnalyses {
 public:
  // The observer must outlive this and the analyses.
  explicit MaskAnalyses(const target::AnalysisObserver* observer = nullptr) : observer_(observer) {}

  // Ids of expressions in the analysis are those of the attention. The deadline may be null.
  Analyzed of(const ir::Attention& attention, std::shared_ptr<target::Deadline> deadline);

 private:
  const target::AnalysisObserver* observer_;
  std::vector<std::shared_ptr<MaskFacts>> kept_;  // which differ in what they depend on
};

// The analysis kept in context.analyses, if that is not null, with the context's deadline.
Analyzed analyzed(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::masks
