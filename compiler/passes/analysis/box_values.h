// What the expressions of an attention can be in a box of scores, and which of them count there.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/range.h"
#include "compiler/passes/analysis/real_range.h"

namespace attn::passes {

enum class Sure : std::uint8_t { no, maybe, yes };

// What is taken for granted of what is not known.
struct Assumed {
  RealRange score;
  RealRange inputs;  // real tensors and params
  // Conjuncts of masks that read tensors or params hold, where they vary with none of these axes.
  std::optional<Axes> agree_beside{};
  bool doubt_shows = false;  // masks of a single score hold where it is not known
};

class BoxValues {
 public:
  // Of what score, scale, masks, sink and kept elements stand on.
  explicit BoxValues(const ir::Attention& attention);

  void look_at(const Box& box, const Assumed& assumed);

  // Of the box looked at last.
  const RealRange& real(ir::ExprId id) const { return reals_[id]; }  // of a real node
  Range range(ir::ExprId id) const { return values_[id]; }           // of any other
  Sure counts(ir::ExprId id) const { return counts_[id]; }
  // Whether an operand of `user` counts since `user` does. Others may make it count too.
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
  std::vector<ir::ExprId> masks_;  // each once: one that is written twice is no guard of itself
  std::vector<ir::ExprId> roots_;
  std::vector<ir::ExprId> order_;
  Ranges integers_;
  std::vector<Range> values_;     // by id
  std::vector<RealRange> reals_;  // by id
  std::vector<Sure> counts_;      // by id
  std::vector<Sure> shows_;       // by id: whether a mask of it would hold; of a boolean
  std::vector<bool> reads_;       // by id: tensors or params
  std::vector<bool> conjoins_;    // by id: an `and` of conjuncts of a mask
  std::vector<Axes> axes_;        // by id
  std::optional<Axes> agree_beside_;
  bool doubt_shows_ = false;
};

}  // namespace attn::passes
