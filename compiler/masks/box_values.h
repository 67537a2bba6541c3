// Ranges of the expressions of an attention in a box of scores, and which of them count there
// (happens.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/range.h"
#include "compiler/masks/real_range.h"

namespace attn::masks {

enum class Sure : std::uint8_t { no, maybe, yes };

// Assumptions about unknown values.
struct Assumed {
  RealRange score;
  RealRange inputs;  // real tensors and params
  // Mask conjuncts that read tensors or params hold if they vary with none of these axes.
  std::optional<Axes> agree_beside{};
  bool doubt_shows = false;  // unknown masks of a single score hold
};

class BoxValues {
 public:
  // Covers the nodes that score, scale, masks, sink and kept elements depend on.
  explicit BoxValues(const ir::Attention& attention);

  void look_at(const Box& box, const Assumed& assumed);

  // Values of the last box.
  const RealRange& real(ir::ExprId id) const { return reals_[id]; }  // of real nodes
  Range range(ir::ExprId id) const { return values_[id]; }           // of other nodes
  Sure counts(ir::ExprId id) const { return counts_[id]; }
  // Whether an operand of `user` counts through `user`. Other users may make it count too.
  Sure counts_by(ir::ExprId user, std::size_t operand) const;

  const std::vector<ir::ExprId>& order() const { return order_; }  // ascending
  Axes axes(ir::ExprId id) const { return axes_[id]; }
  bool reads_inputs(ir::ExprId id) const { return reads_[id]; }  // tensors or params

 private:
  void mark_conjuncts(ir::ExprId mask);
  void set_real(ir::ExprId id, const Assumed& assumed);
  void set_boolean(ir::ExprId id);
  RealRange selected(const ir::Node& node) const;
  void set_counts();
  Sure count_masks();
  void count(ir::ExprId id, Sure sure);
  Sure holds(ir::ExprId id) const;
  void set_shows(ir::ExprId id);

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  std::vector<ir::ExprId> masks_;  // without duplicates: a mask does not guard itself
  std::vector<ir::ExprId> roots_;
  std::vector<ir::ExprId> order_;
  Ranges integers_;
  std::vector<Range> values_;     // by id
  std::vector<RealRange> reals_;  // by id
  std::vector<Sure> counts_;      // by id
  std::vector<Sure> shows_;       // by id, of booleans: whether it would hold as a mask
  std::vector<bool> reads_;       // by id: tensors or params
  std::vector<bool> conjoins_;    // by id: an `and` of conjuncts of a mask
  std::vector<Axes> axes_;        // by id
  std::optional<Axes> agree_beside_;
  bool doubt_shows_ = false;
};

}  // namespace attn::masks
