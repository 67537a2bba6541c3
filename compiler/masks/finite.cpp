#include "compiler/masks/finite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "compiler/ir/real_function.h"
#include "compiler/masks/range.h"
#include "compiler/masks/real_range.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

// Ordered: the worst operand decides.
enum class Kind : std::uint8_t { finite, infinite, anything };

class FiniteAnalysis {
 public:
  FiniteAnalysis(const ir::Attention& attention, Score score)
      : attention_(attention), score_(score) {}

  Kind kind_of(ExprId root) {
    const ExprId roots[] = {root};
    for (const ExprId id : ir::reachable(attention_.dag, roots)) {
      if (attention_.dag[id].type == ir::Type::real) kinds_[id] = kind_of_node(id);
    }
    return kinds_[root];
  }

 private:
  Kind worst(const ir::Node& node) const {
    Kind kind = Kind::finite;
    for (const ExprId operand : node.operands) {
      if (const auto found = kinds_.find(operand); found != kinds_.end()) {
        kind = std::max(kind, found->second);
      }
    }
    return kind;
  }

  // Whether the value is not zero as f32, which kernels compute in.
  static bool is_not_zero(double value) {
    const auto stored = static_cast<float>(value);
    return stored != 0 && std::isfinite(stored);
  }
  bool is_not_zero(ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    if (node.is(Op::const_real_)) return is_not_zero(attention_.dag.real_of(id));
    if (!node.is(Op::to_real_) || attention_.dag[node.operands[0]].type != ir::Type::integer) {
      return false;
    }
    const Range range = range_of(attention_, node.operands[0]);
    return range.low > 0 || range.high < 0;
  }

  // A sum or product with an infinite operand may be NaN (inf - inf, 0 inf), unless the other
  // operand is a number that cannot be 0.
  Kind kind_of_product(const ir::Node& node) const {
    const Kind kind = worst(node);
    const bool harmless = is_not_zero(node.operands[0]) || is_not_zero(node.operands[1]);
    return kind == Kind::infinite && !harmless ? Kind::anything : kind;
  }

  // An infinite product times a scale of 0 is NaN.
  Kind kind_of_score() const {
    if (score_ == Score::finite) return Kind::finite;
    const auto scale = ir::fold_real(attention_.dag, attention_.scale);
    return scale && is_not_zero(*scale) ? Kind::infinite : Kind::anything;
  }

  Kind kind_of_node(ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    const Kind operands = worst(node);
    switch (node.op) {
      case Op::const_real_:
        return std::isfinite(attention_.dag.real_of(id)) ? Kind::finite : Kind::infinite;
      case Op::score_: return kind_of_score();
      case Op::to_real_: return Kind::finite;
      case Op::min_:
      case Op::max_:
      case Op::neg_:
      case Op::abs_:
      case Op::floor_:
      case Op::ceil_:
      case Op::select_: return operands;
      case Op::add_:
      case Op::sub_:
      case Op::mul_: return kind_of_product(node);
      case Op::div_:
      case Op::floordiv_: return is_not_zero(node.operands[1]) ? operands : Kind::anything;
      case Op::mod_:
        return operands == Kind::finite && is_not_zero(node.operands[1]) ? operands
                                                                         : Kind::anything;
      default: return kind_of_function(node.op, operands);
    }
  }

  // Functions are finite if they are bounded and have no NaN.
  static Kind kind_of_function(Op op, Kind operands) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    const double most = operands == Kind::finite ? kLargest : kInfinity;
    const RealRange all{-most, most, operands == Kind::anything};
    const RealRange range = real_range(op, all, all);
    const bool bounded = range.low >= -kLargest && range.high <= kLargest && !range.nan;
    return ir::find_real_function(op) != nullptr && bounded ? Kind::finite : Kind::anything;
  }

  const ir::Attention& attention_;
  Score score_;
  std::map<ExprId, Kind> kinds_;  // of real nodes
};

}  // namespace

bool is_finite(const ir::Attention& attention, ExprId id, Score score) {
  return FiniteAnalysis(attention, score).kind_of(id) == Kind::finite;
}

}  // namespace attn::masks
