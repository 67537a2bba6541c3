// The gradient by the products as a tensor, for unfused programs.
#pragma once

#include <optional>
#include <string>

#include "compiler/codegen/row_tile.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// Names of tensors, and one extent. With a tile, [n,T] replaces [B,Hq,Sq].
struct GradientTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // read: f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string gradients;     // made: [B,Hq,Sq,columns] of the attention's dtype, 0 past Skv
  std::optional<RowTile> tile{};
};

// One step that computes dS' * Derivatives::score * scale; its product with k is dq. It is 0 where
// dS' is, whatever the derivative. Reals are computed in double.
plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors);

}  // namespace attn::codegen
