// Text for a kernel that lists blocks (attn/key_lists.cuh): what masks show of a block of scores,
// by the least and largest values that its rows and its columns have.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines::native {

// Whether intervals may decide what these terms of masks show of a block.
bool intervals_decide(const ir::Attention& attention, const std::vector<ir::ExprId>& terms);

// Members of a class of expressions: kIntervals, kRowValues, kColumnValues and, if the first is
// true,
//   row_values(b, h, row, int*)        the largest parts of masks that depend on no column
//   column_values(b, h, column, int*)  those that depend on no row
//   visible(b, h, rows, columns)       whether masks show a score, from the intervals of both
//   visible_by_tensors(..)             the same of the terms that read tensors, if there are others
//                                      (expressions.h), if known
// It is false if they do not. Parts are integers and booleans; their numbers are
// kRowValues and kColumnValues.
std::string intervals_text(const ir::Attention& attention);

// The text of an interval; nullopt: it may be anything.
using IntervalText = std::optional<std::string>;
// That of a node other than a load, from those of its operands.
IntervalText interval_of(const ir::Node& node,
                         const std::function<IntervalText(ir::ExprId)>& of_operand);

}  // namespace attn::engines::native
