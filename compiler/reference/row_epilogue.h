// The epilogue of one row of o, and its derivatives. Internal to compiler/reference.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/epilogue.h"
#include "compiler/reference/problem.h"
#include "compiler/reference/reverse.h"

namespace attn::reference {

// Not thread-safe: use one per thread. The problem, whose attention has an epilogue, must outlive
// it.
class RowEpilogue {
 public:
  explicit RowEpilogue(const Problem& problem);
  RowEpilogue(const RowEpilogue&) = delete;
  RowEpilogue& operator=(const RowEpilogue&) = delete;

  // Replaces the elements of a row of o, [Dv], by those after the epilogue. Errors: binding if one
  // has no value.
  Status run(const RowPlace& place, std::span<double> o);

  // Propagates the cotangent of an element of the last row.
  void reverse(std::size_t column, double cotangent) { reverse_.run(column, cotangent); }
  // The cotangent of the element before the epilogue.
  double cotangent() const { return leaf_ ? reverse_.cotangent(*leaf_) : 0; }
  // Calls `to` with the name, the element and the cotangent of each tensor that was reached.
  template <typename To>
  void gather(std::size_t column, const To& to) const {
    for (const ir::ExprId load : reverse_.loads()) {
      if (!reverse_.is_reached(load)) continue;
      to(view_.dag.symbol_of(load), *evaluator_.element(load, column), reverse_.cotangent(load));
    }
  }

 private:
  const ir::Attention view_;
  RowEvaluator evaluator_;
  ReverseMode reverse_;
  std::optional<ir::ExprId> leaf_;  // the element before the epilogue, if anything depends on it
  std::vector<double> before_;
};

}  // namespace attn::reference
