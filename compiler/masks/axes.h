// Which indices of the scores an expression depends on.
#pragma once

#include <vector>

#include "compiler/ir/attention.h"

namespace attn::masks {

struct Axes {
  bool batch = false;
  bool head = false;
  bool row = false;
  bool column = false;

  bool both_sides() const { return row && column; }
  bool operator==(const Axes&) const = default;
};

Axes operator|(Axes x, Axes y);

// `axes` without those of extent 1. Open dimensions count as larger.
Axes varying(Axes axes, const ir::Dims& dims);

// Axes that each expression mentions, whatever the extents are. The DAG must outlive this; nodes
// may be added to it.
class Dependence {
 public:
  explicit Dependence(const ir::Dag& dag) : dag_(dag) {}

  Axes operator[](ir::ExprId id);

 private:
  const ir::Dag& dag_;
  std::vector<Axes> axes_;  // by id
};

}  // namespace attn::masks
