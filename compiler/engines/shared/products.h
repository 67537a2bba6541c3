// Building blocks of unfused programs: packed copies of bound tensors, and cuDNN's products of
// them.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Internal tensors of forward and backward.
inline constexpr const char* kProducts = "scores.products";  // q k^T, f32 [B,Hq,Sq,columns]
inline constexpr const char* kScores = "scores.modified";    // f32 [B,Hq,Sq,Skv]
inline constexpr const char* kSinks = "scores.sinks";        // f32 [Hq]
inline constexpr const char* kKept = "scores.kept";          // i32 [B,Hq,Sq,Skv]
inline constexpr const char* kWeights = "scores.weights";    // P keep, [B,Hq,Sq,columns]

// A packed tensor as factor or result of a product: [N, rows, columns].
struct Matrix {
  std::string tensor;
  DType dtype = DType::f32;
  std::array<std::int64_t, 3> dims{};
  bool turned = false;  // read as [N, columns, rows]
  // If the tensor has more rows: how many, and which are used.
  std::int64_t rows_held = 0;
  std::int64_t first_row = 0;
  std::int64_t advance = 0;  // in rows, per turn of the loop
};
Matrix turned(Matrix matrix);

// Internal tensors and steps, in order. The tensors "q", "k", "v", "o", "do", "dq", "dk" and "dv"
// are bound with the dims and layout of q, k, v or o, and have packed copies [B,H,S,D], where D is
// a multiple of 8 and keys have `columns` rows. Heads that share keys are rows of one product: N is
// B Hkv, and q has Hq / Hkv Sq rows, so that a product over rows sums over a group.
class Products {
 public:
  // The attention must outlive it.
  explicit Products(const ir::Attention& attention);

  std::int64_t columns() const { return columns_; }  // Skv, rounded up to a multiple of 8
  std::vector<std::int64_t> scores_dims(std::int64_t columns) const;  // [B,Hq,Sq,columns]

  void add_internal(std::string name, DType dtype, const std::vector<std::int64_t>& dims);
  void add_step(plan::Step step);
  // Sets the turns of the steps added from now on.
  void set_turns(std::int64_t turns) { turns_ = turns; }

  // Adds one step that fills the copies. Elements that a tensor does not have, and rows and keys
  // past the lengths, are 0, whatever memory holds there.
  void add_copies_in(const std::vector<std::string>& names);
  // Adds the copy of an output: a product writes it, and add_copies_out copies it to the output.
  void add_copy(const std::string& name);
  void add_copies_out(const std::vector<std::string>& names);

  Matrix copy(const std::string& name) const;
  Matrix scores(std::string tensor, DType dtype) const;                 // of scores_dims(columns())
  void add_product(const Matrix& a, const Matrix& b, const Matrix& c);  // c = a b

  const std::vector<plan::TensorInfo>& internals() const { return internals_; }
  const std::vector<plan::Step>& steps() const { return steps_; }

  // Errors: unsupported if internal tensors take too much memory.
  Status check_bytes() const;

  // The program of these steps and of those that compute their control tensors.
  using List = std::function<std::vector<plan::TensorInfo>(const std::set<std::string>& used,
                                                           const Controls& controls)>;
  plan::Program program(const List& bound) const;

 private:
  Dims4 copy_dims(const std::string& name) const;
  std::string within_lengths(const std::string& name, codegen::KernelText& kernel) const;

  const ir::Attention& attention_;
  std::int64_t columns_;
  std::vector<plan::TensorInfo> internals_;
  std::vector<plan::Step> steps_;
  std::int64_t turns_ = 1;
};

}  // namespace attn::engines
