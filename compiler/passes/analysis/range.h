// Which integers an expression can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Inclusive; the widest is all 32-bit integers. Of a boolean: within 0 .. 1.
struct Range {
  std::int64_t low = INT32_MIN;
  std::int64_t high = INT32_MAX;

  bool is_false() const { return high == 0; }  // of a boolean
  bool is_true() const { return low == 1; }
  bool operator==(const Range&) const = default;
};

// The scores that are looked at.
struct Box {
  Range batch, head, row, column;

  bool operator==(const Box&) const = default;
};

// All of them; an open dimension is only known to be positive.
Box whole_box(const ir::Attention& attention);

// Sound, not tight: every value that an integer or boolean expression takes in the box lies inside.
// A captured element or a param is only known to be a 32-bit integer, or a boolean; a length lies
// within 0 .. S. A boolean can be neither: then it is 0 .. 1.
class Ranges {
 public:
  // Of what the roots stand on.
  Ranges(const ir::Attention& attention, std::span<const ir::ExprId> roots);

  void look_at(const Box& box);
  std::int64_t operations() const { return static_cast<std::int64_t>(order_.size()); }
  Range operator[](ir::ExprId id) const { return ranges_[id]; }  // in the box looked at last

 private:
  friend class WholeRanges;
  Range of(ir::ExprId id, const Box& box) const;
  Range operation(const ir::Node& node) const;
  Range leaf(const ir::Node& node, const Box& box) const;
  Range load(const ir::Node& node) const;
  Range operand(const ir::Node& node, std::size_t i) const { return ranges_[node.operands[i]]; }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  std::vector<ir::ExprId> order_;
  std::vector<Range> ranges_;  // by id
};

// In the whole box, of an attention whose DAG may grow. Each node is looked at once, however often
// it is asked about.
class WholeRanges {
 public:
  explicit WholeRanges(const ir::Attention& attention);
  Range operator[](ir::ExprId id);

 private:
  Ranges ranges_;
  Box box_;
};

// In the whole box.
Range range_of(const ir::Attention& attention, ir::ExprId id);

}  // namespace attn::passes
