// Prologues as what kernels compute: rows of their own before the attention, which reads what they
// make in place of q and k.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::ir {

// A prologue as scores of an attention, so that what evaluates and writes scores serves: its
// batches and heads are those of the tensor, its rows are the tensor's, and its columns are those
// of a row. An element of the row is a load of a captured tensor `x` [B,H,S,D], and a sum one of
// `sums`, f32.
struct PrologueView {
  Attention attention;
  ExprId value = 0;
  std::vector<ExprId> sums{};
  std::string tensor;                  // "q" or "k"
  std::string x, sums_of_row{};        // names of these captured tensors
  std::map<ExprId, ExprId> numbers{};  // what expressions of the attention are in the view

  std::int64_t rows() const;
  std::int64_t columns() const { return attention.dims[Dim::Skv]; }
  bool is_x(ExprId id) const;    // a load of an element
  bool is_sum(ExprId id) const;  // a load of a sum, whose number is its operand
  std::int64_t number_of(ExprId sum) const;
};

// Those of q and k that there are. Dimensions must be bound.
std::vector<PrologueView> prologue_views(const Attention& attention);

// The attention without prologues: q and k are what they make, in layout bhsd, and have gradients
// if q or k has, or a learned tensor that its prologue reads.
Attention with_prologues_given(const Attention& attention);

inline bool has_prologue(const Attention& attention) {
  return attention.prologue_q || attention.prologue_k;
}

// The learned tensors with a gradient that prologues read, in order of declaration.
std::vector<std::string> learned_by_prologues(const Attention& attention);

// Whether the attention with given prologues has a gradient of "q" or "k" through which others go.
bool goes_through(const Attention& attention, std::string_view tensor);

// `root` with another column of the row in place of each element's own.
ExprId at_depth(Dag& dag, ExprId root, ExprId depth);

}  // namespace attn::ir
