// The skeletons of attnc's kernels: by which instructions they copy and multiply.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::engines::native {

enum class Skeleton : std::uint8_t {
  warp_groups,  // products of warp groups, copies by TMA: compute capability 9.0 (attn/forward.cuh)
  warps,        // products of warps, copies by threads: 8.0 and later (attn/mma_forward.cuh)
};

// The one of the GPU's kernels; nullopt if it has the instructions of none.
std::optional<Skeleton> skeleton_of(const target::Context& context);
// The same, which must exist, and whether it is that of warps.
bool has_kernels_of_warps(const target::Context& context);

// Checks what kernels of warps compute. Errors: unsupported for scales of blocks, and head
// dimensions above kMostDepthOfWarps.
inline constexpr std::int64_t kMostDepthOfWarps = 256;  // Dqk, Dv
Status check_of_warps(const ir::Attention& attention, const target::Context& context);

// Checks that TMA reads rows as kernels of warp groups need them. Errors: unsupported for head
// dimensions that are not multiples of 8, and in 16 bits for rows that TMA cannot read.
Status check_rows_of_groups(const ir::Attention& attention, bool backward);

// The context of the kernels of an attention: that of kernels of warps, where the GPU has warp
// groups whose kernels cannot read the rows, and kernels of warps compute the attention.
target::Context context_of_kernels(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::engines::native
