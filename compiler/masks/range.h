// Ranges of integer and boolean expressions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::masks {

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

// An operation to evaluate. Operands are at `first` of Steps::operands: fewer steps may lie between
// than in the expression.
struct Step {
  ir::ExprId id;
  std::uint32_t first;
  const ir::Node* node;
};

// What evaluates some roots in the boxes within a box.
struct Steps {
  std::vector<Step> steps;  // operands before users
  std::vector<ir::ExprId> operands;
  std::vector<std::pair<ir::ExprId, Range>> settled{};  // operands that none of them narrows
  std::vector<ir::ExprId> roots{};  // those that steps evaluate; the others keep their range
  bool has_undecided_root = false;  // of the others: one whose range is not a single value

  // What a box takes: the steps, and about as much as a few of them to make and keep it.
  std::int64_t cost() const { return static_cast<std::int64_t>(steps.size()) + kBox; }

 private:
  static constexpr std::int64_t kBox = 4;
};
// Shared by boxes in which it is alike.
using Unsettled = std::shared_ptr<const Steps>;

// Sound, not tight: contains every value that an integer or boolean expression takes in the box.
// Captured elements and params that are not known may be any integer of their type or boolean; a
// length lies within 0 .. S. An undecided boolean is 0 .. 1.
//
// A box within another one has no wider ranges. So a search that halves boxes keeps unsettled()
// beside each: of 2,000 disjuncts, most are false in a small box, and its halves evaluate the rest.
class Ranges {
 public:
  // Covers the nodes that the roots depend on. `known` may be null, and must outlive this.
  Ranges(const ir::Attention& attention, std::span<const ir::ExprId> roots,
         const KnownInputs* known = nullptr, Wrapping wrapping = Wrapping::unknown);

  void look_at(const Box& box) { look_at(box, all_); }
  // The same ranges, of within->roots alone. `within` is all(), or what was unsettled in a box that
  // holds this one.
  void look_at(const Box& box, const Unsettled& within);
  const Unsettled& all() const { return all_; }
  // The range in the last box.
  Range operator[](ir::ExprId id) const { return ranges_[id]; }
  // Whether a range is the same in all boxes within, although it may not be a single value.
  bool is_settled(ir::ExprId id) const { return settled_[id]; }
  bool are_settled() const;  // all of within->roots
  // What boxes within the last one have to evaluate.
  Unsettled unsettled();

 private:
  friend class WholeRanges;
  static Range wide_operation(ir::Op op, const Range& x, const Range& y);
  using Operands = std::span<const ir::ExprId>;
  Range of(const ir::Node& node, Operands operands, const Box& box) const;
  Range operation(const ir::Node& node, Operands operands) const;
  Range leaf(const ir::Node& node, const Box& box) const;
  Range load(const ir::Node& node, Operands operands) const;
  std::optional<Range> known(const ir::Node& node, Operands operands) const;
  Range wrapped(Range exact) const;
  Operands operands_of(const Steps& steps, const Step& step) const;
  bool settles(const ir::Node& node, Operands operands, const Range& range) const;
  bool hides_other(const ir::Node& node, Operands operands) const;
  std::optional<ir::ExprId> forwarded(const ir::Node& node, Operands operands) const;
  void mark_needed(const Steps& from);
  Steps remaining(const Steps& from);

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  const KnownInputs* known_;
  Wrapping wrapping_;
  Unsettled all_, last_;                        // steps; those of the last box
  std::size_t count_ = 0;                       // of the last steps that are settled
  std::vector<Range> ranges_;                   // by id
  std::vector<std::uint8_t> settled_;           // by id: bool
  std::vector<std::uint8_t> is_root_, needed_;  // by id
  std::vector<ir::ExprId> instead_;     // by id: the node that has the same range within the box
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

}  // namespace attn::masks
