// How elements of learned tensors reach sums along keys. Internal to key_sums.cpp.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/element_parts.h"
#include "compiler/codegen/key_sums.h"
#include "compiler/masks/axes.h"

namespace attn::codegen {

// The rows of a sum: all batches and heads that it tells apart.
class SumShape {
 public:
  SumShape(const ir::Attention& attention, const ir::KeySum& sum);

  masks::Axes axes() const { return axes_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  std::int64_t keys() const { return dims_.back(); }
  std::int64_t rows() const;

 private:
  masks::Axes axes_;
  std::vector<std::int64_t> dims_;
};

// How an element of a learned tensor reaches a sum.
struct SumPath {
  ir::KeySum sum;
  ir::ExprId load;     // of the element
  ir::ExprId local;    // the derivative of what is summed by it
  std::string onward;  // f32, of the sum's dims: the gradient by what is summed
};

// Whether the load reads each element of its tensor once, at one key of one row.
bool reads_each_once(const ir::Attention& attention, const SumPath& path);

// What reads elements so, and the parts of their gradients.
PartsWalk walk_of(const ir::Attention& attention, const SumPath& path);

}  // namespace attn::codegen
