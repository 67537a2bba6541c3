#include "compiler/check/index_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "compiler/masks/range.h"

namespace attn::check {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

class Adviser {
 public:
  Adviser(const OutsideIndex& outside, const ir::Attention& attention)
      : outside_(outside),
        attention_(attention),
        dag_(attention.dag),
        range_(masks::range_of(attention, outside.index)) {}

  IndexAdvice advise() const {
    if (outside_.size == 1) return {"the only element has the index `0`", {"0"}};
    return outside_.value < 0 ? for_negative() : for_large();
  }

 private:
  std::int64_t size_of(Dim dim) const { return attention_.dims.get(dim).value_or(0); }

  IndexAdvice for_negative() const {
    const std::int64_t size = outside_.size, below = -outside_.value;
    if (const IndexAdvice table = of_table(); !table.help.empty()) return table;
    if (2 * below + 1 == size || range_.high + below < size) return shifted(below);
    if (below < size && range_.high < size) {
      const std::string distance = fmt::format("abs({})", outside_.text);
      const std::string hide =
          outside_.can_hide ? fmt::format(", or hide these scores: `mask {} >= 0;`", outside_.text)
                            : "";
      return {fmt::format("write `{}`{}", distance, hide), {distance}};
    }
    return for_any(fmt::format("{} >= 0", outside_.text));
  }

  // A table of distances of both signs; no help if the index is no such distance.
  IndexAdvice of_table() const {
    const std::int64_t size = outside_.size, half = size / 2;
    if (range_.low >= 0) return {};
    if (range_.high - range_.low < size) return shifted(-range_.low);
    if (size % 2 == 0 || !attention_.masks.empty() || range_.high <= half) return {};
    const std::string clamped =
        fmt::format("clamp({}, {}, {}) + {}", outside_.text, -half, half, half);
    return {fmt::format("for a table of distances up to {}, write `{}`", half, clamped), {clamped}};
  }

  IndexAdvice shifted(std::int64_t distance) const {
    const std::string index = fmt::format("{} + {}", as_term(), amount(distance));
    return {
        fmt::format("in a table of {} elements the index `{}` begins at 0", outside_.size, index),
        {index}};
  }

  IndexAdvice for_large() const {
    const std::int64_t size = outside_.size;
    if (reads_only(Op::head_) && size == size_of(Dim::Hkv) && size < size_of(Dim::Hq)) {
      return {"this axis has an element for each key head: write `h // (Hq // Hkv)`",
              {"h // (Hq // Hkv)"}};
    }
    if (is_aligned_row() && size == size_of(Dim::Sq)) {
      return {"`q_idx` counts from the last key; the row of a tensor is `q_raw`", {"q_raw"}};
    }
    if (const IndexAdvice table = of_table(); !table.help.empty()) return table;
    if (std::vector<std::string> others = other_indexes(); !others.empty()) {
      return {fmt::format("this axis has {} elements: did you mean `{}`?", size,
                          fmt::join(others, "` or `")),
              std::move(others)};
    }
    return for_any(fmt::format("{} < {}", outside_.text, size));
  }

  // Whether it is `q_idx` of an attention that is aligned bottom right.
  bool is_aligned_row() const {
    const ir::Node& node = dag_[outside_.index];
    return attention_.align == ir::Align::bottom_right && node.is(Op::add_) &&
           dag_[node.operands[0]].is(Op::row_) && outside_.value == size_of(Dim::Skv) - 1;
  }

  // Hides the scores, or guards or clamps the index.
  IndexAdvice for_any(const std::string& condition) const {
    const std::string clamped = fmt::format("clamp({}, 0, {})", outside_.text, outside_.size - 1);
    std::string help;
    if (outside_.can_hide) help += fmt::format("hide these scores (`mask {};`), ", condition);
    if (outside_.can_guard)
      help += fmt::format("guard the read (`where({}, ..., 0)`), or ", condition);
    return {fmt::format("{}write `{}`", help, clamped), {clamped}};
  }

  struct Index {
    Op op;
    Dim dim;
    std::string_view name;
  };
  std::array<Index, 4> indexes() const {
    return {{{Op::batch_, Dim::B, "b"},
             {Op::head_, Dim::Hq, "h"},
             {Op::row_, Dim::Sq, "q_idx"},
             {Op::column_, Dim::Skv, outside_.column}}};
  }

  // Where the index is one of them alone: others that run through as many values, and the block of
  // this one, if the axis has an element for each.
  std::vector<std::string> other_indexes() const {
    std::vector<std::string> found;
    if (!dag_[outside_.index].operands.empty()) return found;
    for (const Index& index : indexes()) {
      const std::int64_t size = size_of(index.dim);
      if (!dag_[outside_.index].is(index.op)) {
        if (size == outside_.size) found.emplace_back(index.name);
      } else if (index.dim != Dim::B && size % outside_.size == 0) {
        found.push_back(fmt::format("{} // {}", outside_.text, size / outside_.size));
      }
    }
    return found;
  }

  bool reads_only(Op leaf) const {
    const ExprId roots[] = {outside_.index};
    return std::ranges::all_of(ir::reachable(dag_, roots), [&](ExprId each) {
      return !dag_[each].operands.empty() || dag_[each].is(leaf) || dag_[each].is(Op::const_int_) ||
             dag_[each].is(Op::dim_);
    });
  }

  // The index as an operand of `+` and `//`.
  std::string as_term() const {
    const Op op = dag_[outside_.index].op;
    const bool is_weak = op == Op::bit_or_ || op == Op::bit_and_ || op == Op::bit_xor_ ||
                         op == Op::shift_left_ || op == Op::shift_right_;
    return is_weak ? fmt::format("({})", outside_.text) : outside_.text;
  }

  // A distance by the name of the size that it is 1 less than.
  std::string amount(std::int64_t distance) const {
    if (distance + 1 == size_of(Dim::Sq)) return "Sq - 1";
    if (distance + 1 == size_of(Dim::Skv)) return "Skv - 1";
    return fmt::format("{}", distance);
  }

  const OutsideIndex& outside_;
  const ir::Attention& attention_;
  const ir::Dag& dag_;
  masks::Range range_;  // whatever the masks hide
};

}  // namespace

IndexAdvice advice_for(const OutsideIndex& outside, const ir::Attention& attention) {
  return Adviser(outside, attention).advise();
}

}  // namespace attn::check
