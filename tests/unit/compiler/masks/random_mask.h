// Random masks of rows, columns, constants and given expressions, for the tests of this directory.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::masks::testing {

class RandomMask {
 public:
  RandomMask(ir::Attention& attention, std::mt19937_64& random)
      : dag_(attention.dag), random_(random) {}
  // Every third leaf integer is one of `integers`, and every fourth condition one of `booleans`.
  RandomMask(ir::Attention& attention, std::mt19937_64& random, std::vector<ir::ExprId> integers,
             std::vector<ir::ExprId> booleans)
      : dag_(attention.dag),
        random_(random),
        integers_(std::move(integers)),
        booleans_(std::move(booleans)) {}

  ir::ExprId boolean(int depth) {
    if (depth > 0) {
      switch (pick(5)) {
        case 0: return dag_.add(ir::Op::and_, {boolean(depth - 1), boolean(depth - 1)});
        case 1: return dag_.add(ir::Op::or_, {boolean(depth - 1), boolean(depth - 1)});
        case 2: return dag_.add(ir::Op::not_, {boolean(depth - 1)});
        default: break;
      }
    }
    if (!booleans_.empty() && pick(4) == 0) return booleans_[pick(booleans_.size())];
    constexpr ir::Op kComparisons[] = {ir::Op::lt_, ir::Op::le_, ir::Op::gt_,
                                       ir::Op::ge_, ir::Op::eq_, ir::Op::ne_};
    return dag_.add(kComparisons[pick(6)], {integer(2), integer(2)});
  }

  ir::ExprId integer(int depth) {
    if (depth == 0 || pick(4) == 0) return leaf();
    const ir::ExprId x = integer(depth - 1);
    switch (pick(9)) {
      case 0: return dag_.add(ir::Op::add_, {x, integer(depth - 1)});
      case 1: return dag_.add(ir::Op::mul_, {x, constant(-3, 3)});
      case 2: return dag_.add(ir::Op::floordiv_, {x, constant(1, 9)});
      case 3: return dag_.add(ir::Op::mod_, {x, constant(1, 9)});
      case 4: return dag_.add(ir::Op::abs_, {x});
      case 5: return dag_.add(ir::Op::min_, {x, integer(depth - 1)});
      case 6: return dag_.add(ir::Op::max_, {x, integer(depth - 1)});
      case 7: return dag_.add(ir::Op::select_, {boolean(0), x, integer(depth - 1)});
      default: return dag_.add(ir::Op::sub_, {x, integer(depth - 1)});
    }
  }

 private:
  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  ir::ExprId constant(std::int64_t low, std::int64_t high) {
    return dag_.integer(
        low + static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(high - low + 1))));
  }
  ir::ExprId leaf() {
    if (!integers_.empty() && pick(3) == 0) return integers_[pick(integers_.size())];
    const std::uint64_t which = pick(5);
    if (which < 2) return dag_.leaf(ir::Op::row_);
    return which < 4 ? dag_.leaf(ir::Op::column_) : constant(-20, 20);
  }

  ir::Dag& dag_;
  std::mt19937_64& random_;
  std::vector<ir::ExprId> integers_;
  std::vector<ir::ExprId> booleans_;
};

}  // namespace attn::masks::testing
