// The gradient by the products as a tensor, for a program without a fused kernel.
#pragma once

#include <optional>
#include <string>

#include "compiler/derive/row_tile.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// Names of tensors, and one extent. Where there is a tile, [n,T] stands in place of [B,Hq,Sq].
struct GradientTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // read: f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string gradients;     // made: [B,Hq,Sq,columns] of the attention's dtype, 0 past Skv
  std::optional<RowTile> tile{};
};

// One step that makes dS' * Derivatives::score * scale: what is multiplied by k is dq. Where dS' is
// 0 so is this, whatever the derivative. Reals are computed in double.
plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors);

}  // namespace attn::derive
