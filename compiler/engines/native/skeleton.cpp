#include "compiler/engines/native/skeleton.h"

#include <fmt/format.h>

#include <limits>

#include "compiler/engines/native/caches.h"
#include "compiler/engines/native/checks.h"
#include "compiler/engines/native/chosen_keys.h"
#include "compiler/engines/native/unpaged.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/target/capabilities.h"

namespace attn::engines::native {
namespace {

// What differs from kernels of warp groups, which the GPU has not, or which are not wanted.
std::string kernels_text(const target::Context& context) {
  if (target::can(target::Capability::warp_group_products, context))
    return "attnc's kernels with `--skeleton mma`";
  return fmt::format("attnc's kernels for compute capability {}.{}", context.gpu.sm / 10,
                     context.gpu.sm % 10);
}

}  // namespace

using target::Capability;

std::optional<Skeleton> skeleton_of(const target::Context& context) {
  if (context.rewrites.warp_groups && target::can(Capability::warp_group_products, context))
    return Skeleton::warp_groups;
  if (target::can(Capability::warp_products, context)) return Skeleton::warps;
  return std::nullopt;
}

bool has_kernels_of_warps(const target::Context& context) {
  return skeleton_of(context) == Skeleton::warps;
}

Status check_of_warps(const ir::Attention& attention, const target::Context& context) {
  if (attention.is_mxfp8()) {
    return unsupported(attention.quantize->pos, "attnc's kernels have no scales of blocks",
                       "`quantize per_tensor;` works");
  }
  if (has_formatted_rows(attention, "k")) {
    return unsupported(attention.values_pos,
                       fmt::format("{} read no rows of several types", kernels_text(context)),
                       "those for compute capability 9.0 do");
  }
  for (const ir::Dim dim : {ir::Dim::Dqk, ir::Dim::Dv})
    ATTN_RETURN_IF_ERROR(check_most_depth(attention, dim, kMostDepthOfWarps,
                                          context.backward() ? "backward" : "forward"));
  return {};
}

Status check_rows_of_groups(const ir::Attention& attention, bool backward) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const std::string_view direction = backward ? "backward" : "forward";
  for (const ir::Dim dim : {ir::Dim::Dqk, ir::Dim::Dv})
    ATTN_RETURN_IF_ERROR(check_depth(attention, dim, kAny, direction));
  if (attention.quantize) return {};  // whose rows are copied
  if (attention.cache && !backward) ATTN_RETURN_IF_ERROR(check_rows_of_cache(attention));
  const ir::Attention of_rows = backward ? without_pages(attention) : attention;
  for (const char* name : {"q", "k", "v"}) ATTN_RETURN_IF_ERROR(check_layout(of_rows, name));
  return backward ? check_layout(of_rows, "do") : Status();
}

target::Context context_of_kernels(const ir::Attention& attention, const target::Context& context) {
  target::Context own = context;
  if (skeleton_of(context) != Skeleton::warp_groups) return own;
  if (check_rows_of_groups(attention, context.backward()).ok()) return own;
  own.rewrites.warp_groups = false;
  const bool serve = skeleton_of(own) == Skeleton::warps && check_of_warps(attention, own).ok() &&
                     check_chosen(attention, true).ok();
  return serve ? own : context;
}

}  // namespace attn::engines::native
