// Ranges of integer and boolean expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Inclusive. The widest is all 32-bit integers, of wide expressions kAnyWide. Booleans are within
// 0 .. 1.
struct Range {
  std::int64_t low = INT32_MIN;
  std::int64_t high = INT32_MAX;

  bool is_false() const { return high == 0; }  // of a boolean
  bool is_true() const { return low == 1; }
  bool operator==(const Range&) const = default;
};

inline constexpr Range kAnyWide{INT64_MIN, INT64_MAX};

// Whether it is that of an expression that may have wrapped, or of one that may be anything.
inline bool may_be_wrapped(const Range& range) {
  return range.low <= INT32_MIN && range.high >= INT32_MAX;
}

// A box of scores.
struct Box {
  Range batch, head, row, column;

  bool operator==(const Box&) const = default;
};

// Whether it holds one score.
bool is_single(const Box& box);

// All scores. An open dimension is only known to be positive.
Box whole_box(const ir::Attention& attention);

// What is known of the values of captured tensors and params, both integers or booleans.
class KnownInputs {
 public:
  virtual ~KnownInputs() = default;
  // Contains the elements with these indexes; nullopt if not known, also where there is none.
  virtual std::optional<Range> elements(std::string_view tensor,
                                        std::span<const Range> indexes) const = 0;
  virtual std::optional<Range> param(std::string_view name) const = 0;
};

// Whether the range of an operation that leaves 32 bits tells what it wraps to, or may be anything:
// then who asks need not know whether it wraps.
enum class Wrapping : std::uint8_t { followed, unknown };

// Sound, not tight: contains every value that an integer or boolean expression takes in the box.
// Captured elements and params that are not known may be any integer of their type or boolean; a
// length lies within 0 .. S. An undecided boolean is 0 .. 1.
class Ranges {
 public:
  // Covers the nodes that the roots depend on. `known` may be null, and must outlive this.
  Ranges(const ir::Attention& attention, std::span<const ir::ExprId> roots,
         const KnownInputs* known = nullptr, Wrapping wrapping = Wrapping::unknown);

  void look_at(const Box& box);
  std::int64_t operations() const { return static_cast<std::int64_t>(order_.size()); }
  Range operator[](ir::ExprId id) const { return ranges_[id]; }  // in the last box

 private:
  friend class WholeRanges;
  Range of(ir::ExprId id, const Box& box) const;
  Range operation(const ir::Node& node) const;
  static Range wide_operation(ir::Op op, const Range& x, const Range& y);
  Range leaf(const ir::Node& node, const Box& box) const;
  Range load(const ir::Node& node) const;
  std::optional<Range> known(const ir::Node& node) const;
  Range operand(const ir::Node& node, std::size_t i) const { return ranges_[node.operands[i]]; }
  Range wrapped(Range exact) const;

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  const KnownInputs* known_;
  Wrapping wrapping_;
  std::vector<ir::ExprId> order_;
  std::vector<Range> ranges_;           // by id
  mutable std::vector<Range> indexes_;  // of a load: here so that memory is not asked for in each
};

// Ranges in the whole box, of an attention whose DAG may grow. Each node is evaluated once.
class WholeRanges {
 public:
  explicit WholeRanges(const ir::Attention& attention);
  Range operator[](ir::ExprId id);

 private:
  Ranges ranges_;
  Box box_;
};

// The range in the whole box.
Range range_of(const ir::Attention& attention, ir::ExprId id);

}  // namespace attn::passes
