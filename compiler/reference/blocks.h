// Scales of blocks in the reference. Internal to compiler/reference.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/ir/block_scales.h"
#include "compiler/reference/gradients.h"
#include "compiler/reference/problem.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

// Such a weight, divided by the scale again.
inline double narrow_weight(const Problem& problem, double weight, double scale) {
  return problem.rounded(problem.attention.dtype, weight * scale) / scale;
}

// Multiplies each element of [B,H,S,D] with the scale of its block.
void apply_block_scales(const io::HostTensor& scales, bool along_rows, io::HostTensor& tensor);

// The same for all tensors that have scales; makes copies of q, k, v and do [B,H,S,D].
void apply_block_scales(const ir::Attention& attention, Bindings& bindings);

// [B,H,S,D] in the order of the layout of what the copy is of.
io::HostTensor in_layout(const ir::Attention& attention, const ir::Copy& copy,
                         const io::HostTensor& tensor);

// The gradients of the products of q and k of one head, as kernels round them: in blocks of columns
// for dq, in blocks of rows for dk. Rows come in order.
class BlockSlopes {
 public:
  explicit BlockSlopes(const Problem& problem);

  void begin_row();
  void add(std::size_t column, double slope) { row_[column] = slope; }
  // Adds to the sums of "q", and after the last row of a block to those of "k".
  void end_row(const RowPlace& place, GradientSums& sums);

 private:
  void add_to_q(const RowPlace& place, io::HostTensor& d_q);
  void add_to_k(const RowPlace& place, io::HostTensor& d_k);

  const Problem& problem_;
  std::vector<double> row_;                 // of each column
  std::vector<std::vector<double>> block_;  // of each row of the block
};

struct BlockCopy {
  io::HostTensor elements;  // in the order of the layout
  io::HostTensor scales;    // empty for a copy without scales
};

// What a quantizer makes of what `x`, [B,H,S,D] as given, and its scales stand for. `x` is what is
// copied: q, k, v or do.
BlockCopy make_copy(const ir::Attention& attention, const ir::Copy& copy, io::HostTensor x,
                    const io::HostTensor& scales);

}  // namespace attn::reference
