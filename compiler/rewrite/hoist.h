// Replaces what the fused kernel cannot compute, or only at great cost, by tensors that are derived
// before it runs.
//
// What is derived, by how an expression varies over the scores (b, h, row, column):
//
// - As a vector: the outermost expression that varies with the row or the column, not both, if it
//   cannot be computed in the kernel, or costs at least HoistOptions::worth_vector per score
//   (kWorthDeriving if it varies with neither).
// - As a table: an expression with a part that varies with both and cannot be computed in the
//   kernel (a gather whose indices are not plain ones, bit operations, int()), or is a division or
//   modulo of integers that does not vary with the batch (its cost per score is ruinous, and one
//   table serves the whole batch). The outermost expression that varies with no more than such
//   parts do is derived. So is the outermost that costs more than reading a table.
// - A comparison of 64-bit integers of the rows with such of the columns becomes one of their upper
//   and lower halves, vectors in i32.
// - Masks that become tensors of the same axes are merged. All that a table can hold become one if
//   a table is needed anyway, or if that pays for all of them together.
// - A sink that is not read plainly from an f32 tensor by head becomes such a tensor.
//
// What stays: bounds of the band (band.h), which the kernel skips blocks by; everything that
// depends on the score; the scale. Costs are in multiples of one addition for every score:
//
//   an integer made real, constants and params         0      captured tensor read plainly     2
//                                                             integers by row and column     200
//   index, + - * min max abs neg, comparison, logic    1
//   select                                             2      division of reals, sqrt, rsqrt   6
//   exp log tanh sin .. sigmoid erf                    8      // and % of reals               10
//   pow                                               16      // and % of integers            40
//
// Reading what was derived has a price too (Reading), below which nothing is.
//
// A derived tensor has the extents of the axes it varies with, in the order b, h, row, column; axes
// of extent 1 are left out. One that would have neither rows nor columns gets some where the kernel
// computes wrong values otherwise (docs/cudnn.md). Reals are f32, integers i32. Conditions are 1
// where they hold and 0 elsewhere: vectors of conditions are i32; tables of conditions have the
// dtype of q, because a kernel reads twice as many such elements in the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/target/context.h"

namespace attn::rewrite {

inline constexpr double kWorthDeriving = 8;
inline constexpr double kWorthVector = 16;
inline constexpr double kWorthVectorBackward = 32;

// What reading a tensor costs for every score, measured on an H200: one over rows alone, over
// columns alone, over both, and over both in 16 bits, as which conditions are.
struct Reading {
  double row, column, table, narrow_table;
};
inline constexpr Reading kReadingForward = {4, 13, 27, 22};
inline constexpr Reading kReadingBackward = {12, 85, 210, 90};
inline constexpr double kReadingOne = 2;      // an element of a tensor over batches and heads
inline constexpr double kWorthReading = 1.2;  // so many times as much is computed, at least

// The table's: of the operation alone, without its operands.
double cost_for_each_score(const ir::Node& node);

struct DerivedTensor {
  std::string name;           // in Hoisted::attention, where it is unique
  ir::ExprId expression = 0;  // in Hoisted::attention.dag; reads only the spec's tensors and params
  DType dtype = DType::f32;   // f32, i32, or f16 or bf16 for conditions
  masks::Axes axes;           // of the tensor
  std::vector<std::int64_t> dims;
  bool once = false;  // does not depend on tensors or params
};

struct Hoisted {
  ir::Attention attention;  // reads the derived tensors; the spec's tensors are still declared
  std::vector<ir::ExprId> extra;  // HoistOptions::extra, rewritten
  std::vector<DerivedTensor> derived;
};

struct HoistOptions {
  // Whether the kernel can read this load as it is. An error `unsupported` means that it cannot;
  // other errors are left to lowering, which reports them.
  std::function<Status(const ir::Attention&, ir::ExprId)> readable;
  // Whether the kernel can read tensors over rows alone, or over the batch. If not, the outermost
  // expression without the score that reads one becomes a table over rows and columns, at any cost.
  bool vectors = true;
  double worth_vector = kWorthVector;
  Reading reading = kReadingForward;
  // More expressions of the attention's dag that a kernel computes per score.
  std::vector<ir::ExprId> extra{};
  std::int64_t most_bytes = std::int64_t{16} << 30;       // of all derived tensors
  std::int64_t most_table_bytes = std::int64_t{1} << 30;  // of one that is not required
};

// Dimensions must be bound and the attention simplified. Errors: unsupported, with the position, if
// the derived tensors need more than most_bytes.
Result<Hoisted> hoist(const ir::Attention& attention, const HoistOptions& options,
                      const target::Context& context);

}  // namespace attn::rewrite
